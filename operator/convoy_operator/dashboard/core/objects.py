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
class Kept(Generic[M]):
    """One custom resource."""

    namespace: str
    name: str
    uid: str
    version: int
    model: M | None
    """None for an object that this version cannot read."""
    flaw: str = ""
    """Why it cannot be read."""


def keeper(kind: type[M]) -> Callable[[Mapping[str, Any]], Kept[M]]:
    """What makes a `Kept` of a raw object of that kind."""

    def keep(raw: Mapping[str, Any]) -> Kept[M]:
        parent = views.parent(raw)
        model, flaw = None, ""
        try:
            model = kind.model_validate(parent.raw)
        except ValidationError as error:
            first = error.errors()[0]
            flaw = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return Kept(parent.namespace, parent.name, parent.uid, parent.version, model, flaw)

    return keep
