"""Objects of the API server as the dashboard keeps them: typed, once, when they change."""

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
    """One custom resource."""

    namespace: str
    name: str
    uid: str
    version: int
    model: M | None
    """None for an object that this version cannot read."""
    parse_error: str = ""
    """Why it cannot be read."""


def parser_of(kind: type[M]) -> Callable[[Mapping[str, Any]], ParsedObject[M]]:
    """What makes a `Kept` of a raw object of that kind."""

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
