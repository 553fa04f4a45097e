"""Reads a network of links: a mesh, a torus, a fat tree, or an arbitrary graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise

from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.fabrics.fat_tree import FatTree
from convoy_controllers.astrasim.network.fabrics.graph import LinkGraph, Unreachable
from convoy_controllers.astrasim.network.fabrics.grid import Grid
from convoy_controllers.astrasim.parameters import Backend, GraphNetwork
from convoy_controllers.astrasim.parsing.fields import Field

MOST_RANKS = 65_536
MOST_SWITCHES = 65_536
MOST_LINKS = 500_000
MOST_ROUTES = 100_000
MOST_NAME = 253
MOST_AXES = 4
"""Dimensions of a mesh or torus."""
LEAST_BANDWIDTH = 1e-6
"""GB/s of the slowest link or memory, about 1 KB/s. Much less overflows the times."""


class NetworkType(StrEnum):
    """Kind of a network of links."""

    MESH = "mesh"
    TORUS = "torus"
    FAT_TREE = "fatTree"
    GRAPH = "graph"


class Routing(StrEnum):
    """The choice among the shortest paths of a graph."""

    FIRST = "first"
    """The link that the file lists first."""
    ECMP = "ecmp"
    """A hash of source and target."""


def graph_network(field: Field, backend: Field) -> GraphNetwork:
    """Return a network of links."""
    match field["type"].choice(NetworkType):
        case NetworkType.FAT_TREE:
            fabric, sizes = _fat_tree(field)
        case NetworkType.GRAPH:
            fabric, sizes = _graph(field)
        case kind:
            fabric, sizes = _grid(field, kind is NetworkType.TORUS)
    return GraphNetwork(backend.choice(Backend), fabric, sizes)


def logical_sizes(field: Field, ranks: int) -> tuple[int, ...]:
    """Return the logical dimensions of collectives, by default one of all ranks."""
    if not field.has("dimensions"):
        return (ranks,)
    found = tuple(one.whole(2, MOST_RANKS) for one in field["dimensions"].items())
    if math.prod(found) != ranks or not found:
        raise field["dimensions"].error(
            f"must have the product {ranks}, the number of ranks, has {math.prod(found)}"
        )
    return found


def _grid(field: Field, wraps: bool) -> tuple[Fabric, tuple[int, ...]]:
    field.only(frozenset({"type", "npus_count", "bandwidth_GBps", "latency_ns"}))
    sizes = tuple(one.whole(2, MOST_RANKS) for one in field["npus_count"].items())
    if not 1 <= len(sizes) <= MOST_AXES:
        raise field["npus_count"].error(f"needs 1 to {MOST_AXES} dimensions, has {len(sizes)}")
    if math.prod(sizes) > MOST_RANKS:
        raise field["npus_count"].error(f"may be at most {MOST_RANKS} ranks in all, are {math.prod(sizes)}")
    bandwidths = _for_each(field, "bandwidth_GBps", len(sizes), bandwidth)
    latencies = _for_each(field, "latency_ns", len(sizes), Field.number)
    return Grid(sizes, bandwidths, latencies, wraps), sizes


def _for_each(field: Field, name: str, count: int, read: Callable[[Field], float]) -> list[float]:
    """Return a number for each dimension. A single number counts for all."""
    if not isinstance(field[name].value, list):
        return [read(field[name])] * count
    found = [read(one) for one in field[name].items()]
    if len(found) != count:
        raise field[name].error(f"needs one number, or {count}, one for each dimension, has {len(found)}")
    return found


def bandwidth(field: Field) -> float:
    """Return the bandwidth of a link or a memory."""
    found = field.number(above=0)
    if found < LEAST_BANDWIDTH:
        raise field.error(f"must be at least {LEAST_BANDWIDTH:g}, is {found:g}")
    return found


def _fat_tree(field: Field) -> tuple[Fabric, tuple[int, ...]]:
    field.only(frozenset({"type", "k", "bandwidth_GBps", "latency_ns", "dimensions"}))
    k = field["k"].whole(2, 64)
    if k % 2:
        raise field["k"].error(f"must be even, is {k}")
    fabric = FatTree(k, bandwidth(field["bandwidth_GBps"]), field["latency_ns"].number())
    return fabric, logical_sizes(field, fabric.ranks)


def _graph(field: Field) -> tuple[Fabric, tuple[int, ...]]:
    field.only(frozenset({"type", "npus_count", "switches", "links", "routing", "routes", "dimensions"}))
    ranks = field["npus_count"].whole(2, MOST_RANKS)
    switches = _switches(field["switches"]) if field.has("switches") else {}
    nodes = _Nodes(ranks, switches)
    links = _links(field["links"], nodes)
    hashes = field.has("routing") and field["routing"].choice(Routing) is Routing.ECMP
    routes = _routes(field["routes"], nodes, links) if field.has("routes") else {}
    try:
        fabric = LinkGraph(ranks, list(switches), list(links.values()), routes, hashes)
    except Unreachable as error:
        raise field["links"].error(str(error)) from None
    return fabric, logical_sizes(field, ranks)


class _Nodes:
    """The nodes of a graph: a rank is a whole number, a switch is a name."""

    def __init__(self, ranks: int, switches: dict[str, int]) -> None:
        self.ranks = ranks
        self._switches = switches

    def read(self, field: Field) -> int:
        """Return the number of a node."""
        if not isinstance(field.value, str):
            return field.whole(0, self.ranks - 1)
        if field.value not in self._switches:
            raise field.error(f"there is no switch {field.value[:MOST_NAME]!r} in network.switches")
        return self.ranks + self._switches[field.value]


def _switches(field: Field) -> dict[str, int]:
    """Return the place of each switch by name."""
    found: dict[str, int] = {}
    for one in field.items():
        name = one.text()
        if not 0 < len(name) <= MOST_NAME:
            raise one.error(f"needs 1 to {MOST_NAME} characters, has {len(name)}")
        if name in found:
            raise one.error(f"another switch is also named {name!r}")
        if len(found) == MOST_SWITCHES:
            raise field.error(f"may be at most {MOST_SWITCHES}")
        found[name] = len(found)
    return found


def _links(field: Field, nodes: _Nodes) -> dict[tuple[int, int], Link]:
    """Return the directed links by their two nodes."""
    found: dict[tuple[int, int], Link] = {}
    for one in field.items():
        one.only(frozenset({"from", "to", "bandwidth_GBps", "latency_ns", "duplex"}))
        start, end = nodes.read(one["from"]), nodes.read(one["to"])
        if start == end:
            raise one.error("connects a node with itself")
        rate, latency = bandwidth(one["bandwidth_GBps"]), one["latency_ns"].number()
        both = one.has("duplex") and one["duplex"].flag()
        for pair in ((start, end), (end, start)) if both else ((start, end),):
            if pair in found:
                raise one.error("another link already connects these nodes in this direction")
            found[pair] = Link(*pair, rate, latency)
        if len(found) > MOST_LINKS:
            raise field.error(f"may be at most {MOST_LINKS}, counted by direction")
    return found


def _routes(
    field: Field, nodes: _Nodes, links: dict[tuple[int, int], Link]
) -> dict[tuple[int, int], tuple[Link, ...]]:
    """Return the given routes by source and target. A route lists the nodes from a rank to another one."""
    found: dict[tuple[int, int], tuple[Link, ...]] = {}
    for one in field.items():
        path = [nodes.read(item) for item in one.items()]
        if len(path) < 2 or path[0] >= nodes.ranks or path[-1] >= nodes.ranks:
            raise one.error("must lead from a rank to a rank")
        if len(set(path)) != len(path):
            raise one.error("visits a node twice")
        steps = list(pairwise(path))
        for number, step in enumerate(steps):
            if step not in links:
                raise one.error(f"has no link from entry {number} to entry {number + 1}")
        if (path[0], path[-1]) in found:
            raise one.error(f"there is another route from rank {path[0]} to rank {path[-1]}")
        if len(found) == MOST_ROUTES:
            raise field.error(f"may be at most {MOST_ROUTES}")
        found[path[0], path[-1]] = tuple(links[step] for step in steps)
    return found
