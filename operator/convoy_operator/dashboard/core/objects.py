"""Custom resources as typed objects, parsed once per change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from convoy_crds.meta import Model
from convoy_operator import views

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class ParsedObject(Generic[M]):
    """A custom resource that was parsed into its typed model."""

    namespace: str
    name: str
    uid: str
    version: int
    model: M | None
    """The typed object; None if this version of the dashboard cannot read it."""
    parse_error: str = ""
    """The first error of the parser; empty if the object is valid."""


def parser_of(kind: type[M]) -> Callable[[Mapping[str, Any]], ParsedObject[M]]:
    """Return a function that parses objects of the kind."""

    def parse(raw: Mapping[str, Any]) -> ParsedObject[M]:
        parent = views.cached_object(raw)
        model, parse_error = None, ""
        try:
            model = kind.model_validate(parent.raw)
        except ValidationError as error:
            first = error.errors()[0]
            parse_error = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return ParsedObject(parent.namespace, parent.name, parent.uid, parent.version, model, parse_error)

    return parse
