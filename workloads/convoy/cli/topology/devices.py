"""The devices of an infrastructure: their components, links and internal edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from convoy.cli.topology.selection import indices, parts
from convoy_controllers.astrasim.parsing.fields import Field

MOST_DEPTH = 8
"""Levels of devices within devices."""
_DEVICE = "device"
_CHOICES = ("custom", _DEVICE, "cpu", "xpu", "nic", "memory", "port", "switch")
_SCHEMES = ("one2one", "many2many")

_BANDWIDTHS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}
"""Bytes per second of each unit. A transfer (GT/s) has no fixed number of bytes."""
_LATENCIES = {"ms": 1e6, "us": 1e3, "ns": 1.0}
"""ns of each unit."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A named link."""

    name: str
    bandwidth: float | None = None
    """Bytes per second; None if the file does not have it."""
    latency: float | None = None
    """ns; None if the file does not have it."""


@dataclass(frozen=True, slots=True)
class Component:
    """A component of a device."""

    count: int
    kind: str
    nested: bool = False
    """True if the component is a device of its own."""


@dataclass(slots=True)
class Device:
    """A device of an infrastructure file, with its components, links and edges."""

    components: dict[str, Component] = field(default_factory=dict)
    links: dict[str, Wire] = field(default_factory=dict)
    edges: list[Field] = field(default_factory=list)


Devices = dict[str, Device]


def devices(infrastructure: Field) -> Devices:
    """Return the devices by name."""
    found: Devices = {}
    for one in _items(infrastructure, "devices"):
        name = one["name"].text()
        if name in found:
            raise one["name"].error(f"another device is also named {name!r}")
        found[name] = Device(_components(one), wires(one), list(_items(one, "edges")))
    for one in _items(infrastructure, "devices"):
        _check_depth(found, one["name"], one["name"].text(), ())
    return found


def wires(field: Field) -> dict[str, Wire]:
    """Return the links of an infrastructure or a device by name."""
    found: dict[str, Wire] = {}
    for one in _items(field, "links"):
        name = one["name"].text()
        if name in found:
            raise one["name"].error(f"another link is also named {name!r}")
        bandwidth = latency = None
        if one.has("physical"):
            physical = one["physical"]
            bandwidth = _quantity(physical, "bandwidth", _BANDWIDTHS)
            latency = _quantity(physical, "latency", _LATENCIES)
        found[name] = Wire(name, bandwidth, latency)
    return found


def scheme(edge: Field) -> str:
    """Return how an edge connects its two lists of endpoints."""
    found = edge["scheme"].text()
    if found not in _SCHEMES:
        raise edge["scheme"].error(f"must be {' or '.join(_SCHEMES)}, is {found[:60]!r}")
    return found


def names(field: Field, all_devices: Devices, device: str, path: str) -> Iterator[str]:
    """Yield the names of the components that a path selects, such as `card.0.port.1`."""
    yield from _names(field, all_devices, device, parts(field, path), "")


def count(field: Field, all_devices: Devices, device: str, path: str) -> int:
    """Return the number of components that a path selects, without listing them."""
    total = 1
    for name, slice_ in parts(field, path):
        total *= len(indices(field, slice_, _component(field, all_devices, device, name).count))
        device = name
    return total


def _names(
    field: Field, all_devices: Devices, device: str, path: list[tuple[str, str]], prefix: str
) -> Iterator[str]:
    (name, slice_), *rest = path
    component = _component(field, all_devices, device, name)
    if component.nested and not rest:
        raise field.error(f"{name!r} is a device: name a component of it")
    for index in indices(field, slice_, component.count):
        if rest:
            yield from _names(field, all_devices, name, rest, f"{prefix}{name}.{index}.")
        else:
            yield f"{prefix}{name}.{index}"


def _component(field: Field, all_devices: Devices, device: str, name: str) -> Component:
    if device not in all_devices or name not in all_devices[device].components:
        raise field.error(f"device {device!r} has no component {name!r}")
    return all_devices[device].components[name]


def _components(device: Field) -> dict[str, Component]:
    found: dict[str, Component] = {}
    for one in _items(device, "components"):
        name = one["name"].text()
        if name in found:
            raise one["name"].error(f"another component is also named {name!r}")
        (pair,) = parts(one["name"], name)[:1]
        if pair != (name, ""):
            raise one["name"].error("must be a name without indices and dots")
        # Upstream's files name the choice, or only the member of the choice.
        kind = one["choice"].text() if one.has("choice") else next(filter(one.has, _CHOICES), "")
        if kind not in _CHOICES:
            raise one["choice"].error(f"must be one of {', '.join(_CHOICES)}, is {kind[:60]!r}")
        count = one["count"].whole(0, 2**31 - 1)
        shown = one["custom"]["type"].text() if kind == "custom" else kind
        found[name] = Component(count, shown, nested=kind == _DEVICE)
    return found


def _check_depth(found: Devices, where: Field, name: str, above: tuple[str, ...]) -> None:
    if name in above:
        raise where.error(f"the device contains itself: {' > '.join((*above, name))}")
    if len(above) == MOST_DEPTH:
        raise where.error(f"has more than {MOST_DEPTH} levels of devices within devices")
    for component, one in found[name].components.items():
        if one.nested:
            if component not in found:
                raise where.error(f"its component {component!r} must be the name of a device")
            _check_depth(found, where, component, (*above, name))


def _quantity(physical: Field, name: str, units: dict[str, float]) -> float | None:
    """Return a quantity; None without one, or in a unit that says too little."""
    if not physical.has(name):
        return None
    one = physical[name]
    for unit, factor in units.items():
        if one.has(unit):
            return one[unit].number(above=0 if name == "bandwidth" else None) * factor
    return None


def _items(field: Field, name: str) -> Iterator[Field]:
    if field.has(name):
        yield from field[name].items()
