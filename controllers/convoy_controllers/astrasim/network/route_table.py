"""The links of a network model, made when a message first uses them, and the routes over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from convoy_controllers.astrasim.network.delays import bytes_per_ns
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.result import LinkUse

KEPT_HOPS = 4_000_000
"""Hops of the routes that are kept, about 100 MB. Others are computed again."""


class Carrier(Protocol):
    """A link as a network model sees it."""

    link: Link
    bytes: int
    """Bytes that the link has carried."""


C = TypeVar("C", bound=Carrier)


class RouteTable(Generic[C]):
    """The used links of a fabric, and routes between ranks."""

    def __init__(self, fabric: Fabric, make: Callable[[Link], C]) -> None:
        self._fabric = fabric
        self._make = make
        self._carriers: dict[tuple[int, int], C] = {}
        self._routes: dict[tuple[int, int], tuple[C, ...]] = {}
        self._kept = 0

    def route(self, source: int, target: int) -> tuple[C, ...]:
        """Return the links from a rank to another one, in order."""
        found = self._routes.get((source, target))
        if found is None:
            found = tuple(map(self._carrier, self._fabric.route(source, target)))
            if self._kept < KEPT_HOPS:
                self._kept += len(found)
                self._routes[source, target] = found
        return found

    def uses(self, duration: int) -> Iterator[LinkUse]:
        """Yield the use of each used link over a duration in ns."""
        for one in self._carriers.values():
            link = one.link
            name = f"{self._fabric.name(link.start)} -> {self._fabric.name(link.end)}"
            busy = one.bytes / bytes_per_ns(link.bandwidth)
            yield LinkUse(name, one.bytes, busy / duration if duration else 0.0)

    def _carrier(self, link: Link) -> C:
        key = link.start, link.end
        found = self._carriers.get(key)
        if found is None:
            found = self._carriers[key] = self._make(link)
        return found
