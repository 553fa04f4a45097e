"""Expands an InfraGraph to the graph of all components and edges, as the package's service does.

The service expands without limits. This expansion first counts what a file asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from convoy.cli.topology.devices import Device, Devices, Wire, count, devices, names, scheme, wires
from convoy.cli.topology.selection import indices, parts
from convoy_controllers.astrasim.parsing.fields import Field

MOST_COMPONENTS = 200_000
MOST_EDGES = 250_000


@dataclass(slots=True)
class Expanded:
    """All components and edges of an infrastructure."""

    kinds: dict[str, str] = field(default_factory=dict)
    """Kind of each component by its full name, such as `host.0.xpu.1`."""
    edges: dict[tuple[str, str], Wire] = field(default_factory=dict)
    """The link of each undirected edge. The name that comes first in `kinds` is the first of the pair."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Copies of a device."""

    device: str
    count: int


def expand(infrastructure: Field) -> Expanded:
    """Return all components and edges. Raises InvalidInput with the path of the first invalid field."""
    return _Expansion(infrastructure).run()


class _Expansion:
    def __init__(self, infrastructure: Field) -> None:
        self._field = infrastructure
        self._devices = devices(infrastructure)
        self._links = wires(infrastructure)
        self._instances: dict[str, Instance] = {}
        self._found = Expanded()
        self._places: dict[str, int] = {}
        self._edges = 0

    def run(self) -> Expanded:
        sizes: dict[str, int] = {}
        total = 0
        for one in self._items(self._field, "instances"):
            name, device = one["name"].text(), one["device"].text()
            if name in self._instances:
                raise one["name"].error(f"another instance is also named {name!r}")
            if parts(one["name"], name) != [(name, "")]:
                raise one["name"].error("must be a name without indices and dots")
            if device not in self._devices:
                raise one["device"].error(f"there is no device {device!r}")
            copies = one["count"].whole(1, 2**31 - 1)
            self._instances[name] = Instance(device, copies)
            total += copies * (1 + _size(self._devices, device, sizes))
            if total > MOST_COMPONENTS:
                raise one["count"].error(f"the infrastructure may have at most {MOST_COMPONENTS} components")
        for name, instance in self._instances.items():
            for index in range(instance.count):
                self._add_components(f"{name}.{index}.", self._devices[instance.device])
        self._places = {name: place for place, name in enumerate(self._found.kinds)}
        for name, instance in self._instances.items():
            self._add_device_edges(name, instance)
        for one in self._items(self._field, "edges"):
            self._add_edges(one)
        return self._found

    def _add_components(self, prefix: str, device: Device) -> None:
        for name, component in device.components.items():
            for index in range(component.count):
                if component.nested:
                    self._add_components(f"{prefix}{name}.{index}.", self._devices[name])
                else:
                    self._found.kinds[f"{prefix}{name}.{index}"] = component.kind

    def _add_device_edges(self, name: str, instance: Instance) -> None:
        """Add the edges within all copies of a device, and within the devices in it."""
        prefixes = [f"{name}.{index}." for index in range(instance.count)]
        self._add_inner_edges(instance.device, prefixes)

    def _add_inner_edges(self, device: str, prefixes: list[str]) -> None:
        own = self._devices[device]
        for edge in own.edges:
            wire = self._wire(edge, own.links)
            ends = []
            for side in ("ep1", "ep2"):
                end = edge[side]
                path = f"{end['device'].text()}." if end.has("device") else ""
                ends.append((end, device, path + end["component"].text(), [""]))
            pairs = list(self._pairs(edge, ends, len(prefixes)))
            for prefix in prefixes:
                for first, second in pairs:
                    self._add(prefix + first, prefix + second, wire)
        for name, component in own.components.items():
            if component.nested:
                inner = [
                    f"{prefix}{name}.{index}." for prefix in prefixes for index in range(component.count)
                ]
                self._add_inner_edges(name, inner)

    def _add_edges(self, edge: Field) -> None:
        wire = self._wire(edge, self._links)
        ends = []
        for side in ("ep1", "ep2"):
            end = edge[side]
            where = end["instance"]
            ((name, slice_),) = parts(where, where.text())[:1]
            if name not in self._instances:
                raise where.error(f"there is no instance {name!r}")
            instance = self._instances[name]
            copies = [f"{name}.{index}." for index in indices(where, slice_, instance.count)]
            ends.append((end, instance.device, end["component"].text(), copies))
        for first, second in self._pairs(edge, ends, 1):
            self._add(first, second, wire)

    def _pairs(
        self, edge: Field, ends: list[tuple[Field, str, str, list[str]]], copies: int
    ) -> Iterable[tuple[str, str]]:
        """Return the pairs of components that an edge connects, each side with its prefixes."""
        one2one = scheme(edge) == "one2one"
        sizes = [
            count(end["component"], self._devices, device, path) * len(prefixes)
            for end, device, path, prefixes in ends
        ]
        self._edges += copies * (min(sizes) if one2one else sizes[0] * sizes[1])
        if self._edges > MOST_EDGES:
            raise edge.error(f"the infrastructure may have at most {MOST_EDGES} edges")
        first, second = (
            [
                prefix + name
                for prefix in prefixes
                for name in names(end["component"], self._devices, device, path)
            ]
            for end, device, path, prefixes in ends
        )
        if one2one:
            return zip(first, second, strict=False)
        return ((one, other) for one in first for other in second)

    def _wire(self, edge: Field, links: dict[str, Wire]) -> Wire:
        name = edge["link"].text()
        if name not in links:
            raise edge["link"].error(f"there is no link {name!r}")
        return links[name]

    def _add(self, first: str, second: str, wire: Wire) -> None:
        if first == second:
            return
        if self._places[first] > self._places[second]:
            first, second = second, first
        before = self._found.edges.get((first, second))
        if before is not None:
            # As in the service, a later link of the same pair replaces what it states.
            wire = replace(
                wire,
                bandwidth=wire.bandwidth or before.bandwidth,
                latency=before.latency if wire.latency is None else wire.latency,
            )
        self._found.edges[first, second] = wire

    @staticmethod
    def _items(field: Field, name: str) -> Iterator[Field]:
        if field.has(name):
            yield from field[name].items()


def _size(all_devices: Devices, device: str, known: dict[str, int]) -> int:
    """Return the number of components of a device, those in its devices included.

    Devices count too, because they cost time even if they are empty.
    """
    if device not in known:
        known[device] = sum(
            one.count * (1 + (_size(all_devices, name, known) if one.nested else 0))
            for name, one in all_devices[device].components.items()
        )
    return known[device]
