"""The links of a fabric and the route of each offset.

A route is a tuple of (offset, number): the GPU to which the link belongs, as an offset from the sender, and
the link's number at that GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from convoy_controllers.astrasim.loadstore.parameters import Fabric

Route = tuple[tuple[int, int], ...]


def _switch(gpus: int, peer: int) -> Route:
    del gpus
    return ((0, 0), (peer, 1))


def _fully_connected(gpus: int, peer: int) -> Route:
    del gpus
    return ((0, peer),)


def _ring(gpus: int, peer: int) -> Route:
    if 2 * peer <= gpus:
        return tuple((hop, 0) for hop in range(peer))
    return tuple((-hop % gpus, 1) for hop in range(gpus - peer))


ROUTES: Mapping[Fabric, Callable[[int, int], Route]] = {
    Fabric.SWITCH: _switch,
    Fabric.FULLY_CONNECTED: _fully_connected,
    Fabric.RING: _ring,
}


def route(fabric: Fabric, gpus: int, peer: int) -> Route:
    """Return the links from a GPU to the offset `peer`."""
    return ROUTES[fabric](gpus, peer)


def busiest(fabric: Fabric, gpus: int, peers: tuple[int, ...], data: int, control: int) -> int:
    """Return the bytes on the busiest link of a GPU, if each GPU exchanges one message with each of `peers`.

    `data` bytes go one way and `control` bytes the other. All GPUs do the same, so each link number carries
    the same on every GPU.
    """
    count: Counter[int] = Counter()
    for peer in peers:
        for way, size in ((peer, data), (gpus - peer, control)):
            for _, number in route(fabric, gpus, way):
                count[number] += size
    return max(count.values())
