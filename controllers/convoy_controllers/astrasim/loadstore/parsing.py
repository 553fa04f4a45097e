"""Reads the members `loadStore` and `sweep` of a what-if file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.astrasim.loadstore.limits import check
from convoy_controllers.astrasim.loadstore.parameters import (
    Access,
    Algorithm,
    Fabric,
    Gpu,
    Links,
    Mode,
    Setup,
    Sync,
)
from convoy_controllers.astrasim.loadstore.sweep import AXES, Value
from convoy_controllers.astrasim.parameters import CollectiveType
from convoy_controllers.astrasim.parsing.fields import Field

MEMBER = "loadStore"
FILE_FIELDS = frozenset({MEMBER, "sweep", "id", "note"})

Read = Callable[[Field], Any]


def _whole(field: Field) -> int:
    return field.whole()


def _number(field: Field) -> float:
    return field.number()


_GPU: Mapping[str, tuple[str, Read]] = {
    "computeUnits": ("compute_units", _whole),
    "workgroups": ("workgroups", _whole),
    "outstanding": ("outstanding", _whole),
    "lineBytes": ("line", _whole),
    "issueNs": ("issue", _number),
    "cacheNs": ("cache", _number),
    "memoryNs": ("memory", _number),
    "reduceNs": ("reduce", _number),
    "barrierNs": ("barrier", _number),
    "launchNs": ("launch", _number),
}
_LINKS: Mapping[str, tuple[str, Read]] = {
    "fabric": ("fabric", lambda field: field.choice(Fabric)),
    "gpus": ("gpus", _whole),
    "bytesPerNs": ("bandwidth", _number),
    "latencyNs": ("latency", _number),
    "headerBytes": ("header", _whole),
    "burstBytes": ("burst", _whole),
    "controlFirst": ("control_first", Field.flag),
}
_SETUP: Mapping[str, tuple[str, Read]] = {
    "collective": ("collective", lambda field: field.choice(CollectiveType)),
    "algorithm": ("algorithm", lambda field: field.choice(Algorithm)),
    "access": ("access", lambda field: field.choice(Access)),
    "bytes": ("size", _whole),
    "sync": ("sync", lambda field: field.choice(Sync)),
    "mode": ("mode", lambda field: field.choice(Mode)),
    "seamBytes": ("seam", _whole),
    "gpu": ("gpu", lambda field: Gpu(**_members(field, _GPU))),
    "links": ("links", lambda field: Links(**_members(field, _LINKS))),
}
_VALUES: Mapping[str, Read] = {
    name: read for fields in (_GPU, _LINKS, _SETUP) for name, (_, read) in fields.items() if name in AXES
}


@dataclass(frozen=True, slots=True)
class Study:
    """The content of a file: a run, or the base of a sweep."""

    setup: Setup
    axes: Mapping[str, tuple[Value, ...]] | None


def study(body: Any) -> Study:
    """Return the content of a file. Raises InvalidInput with the path of the first invalid field."""
    field = Field(body, "")
    field.only(FILE_FIELDS)
    setup = Setup(**_members(field[MEMBER], _SETUP))
    check(setup, MEMBER)
    return Study(setup, _axes(field["sweep"]) if field.has("sweep") else None)


def _members(field: Field, known: Mapping[str, tuple[str, Read]]) -> dict[str, Any]:
    """Return the arguments of a class from the members of a mapping."""
    field.only(frozenset(known))
    return {name: read(field[given]) for given, (name, read) in known.items() if field.has(given)}


def _axes(field: Field) -> dict[str, tuple[Value, ...]]:
    field.only(frozenset(AXES))
    return {name: tuple(_VALUES[name](one) for one in field[name].items()) for name in field.members()}
