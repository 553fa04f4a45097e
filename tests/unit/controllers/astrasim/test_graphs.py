"""Networks of links: routes, and graphs of one dimension against the figures of ASTRA-sim."""

from __future__ import annotations

import copy
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controllers.astrasim.test_invariants import quick

from convoy_controllers.astrasim.network.fabrics.dimension import DimensionFabric
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.fabrics.fat_tree import FatTree
from convoy_controllers.astrasim.network.fabrics.graph import LinkGraph
from convoy_controllers.astrasim.network.fabrics.grid import Grid
from convoy_controllers.astrasim.oracle import Case, cases, differences, play
from convoy_controllers.astrasim.parameters import Dimension, Topology
from convoy_controllers.astrasim.parsing.simulation import simulation
from convoy_controllers.astrasim.run import run

BODY: Any = json.loads((Path(__file__).parent / "oracle.json").read_text())["cases"]
MOST_RANKS = 16


def as_graph(network: Any) -> Any:
    """Return a network of one dimension as a graph. A ring's clockwise links come first."""
    (topology,), (ranks,) = network["topology"], network["npus_count"]
    match topology:
        case "Ring":
            pairs = [(one, (one + step) % ranks) for step in (1, -1) for one in range(ranks)]
        case "FullyConnected":
            pairs = [(one, other) for one in range(ranks) for other in range(ranks) if one != other]
        case _:
            pairs = [pair for one in range(ranks) for pair in ((one, "switch"), ("switch", one))]
    facts = {"bandwidth_GBps": network["bandwidth_GBps"][0], "latency_ns": network["latency_ns"][0]}
    return {
        "type": "graph",
        "npus_count": ranks,
        "switches": ["switch"],
        "links": [{"from": start, "to": end, **facts} for start, end in pairs],
    }


def graph_cases() -> list[Case]:
    """Return the cases of one dimension with congestion, on graphs."""
    found = []
    for one in BODY:
        if one["backend"] == "aware" and one["npus"] <= MOST_RANKS and len(one["network"]["topology"]) == 1:
            found.append({**one, "network": as_graph(one["network"])})
    return cases({"cases": found})


GRAPH_CASES = graph_cases()


def test_every_topology_is_among_the_cases() -> None:
    assert len(GRAPH_CASES) >= 40
    links = Counter(
        len(case.field.value["network"]["links"]) / case.field.value["npus"] for case in GRAPH_CASES
    )
    assert links[2] >= 20 and max(links) == MOST_RANKS - 1


@pytest.mark.parametrize("case", GRAPH_CASES, ids=lambda case: case.name)
def test_a_graph_of_one_dimension_has_the_figures_of_astra_sim(case: Case) -> None:
    result = play(case)
    assert differences(case, result) == []
    assert not result.collapsed and (result.links or not case.finishes)


@pytest.mark.parametrize("backend", ["unaware", "fairShare"])
def test_a_graph_has_the_figures_of_its_dimension(backend: str) -> None:
    for case in [one for one in GRAPH_CASES if one.finishes][::6]:
        body = copy.deepcopy(next(one for one in BODY if one["id"] == case.name))
        body["backend"] = backend
        graph = {**body, "network": as_graph(body["network"])}
        assert run(simulation(graph)).ranks == run(simulation(body)).ranks


def nodes(fabric: Fabric, source: int, target: int) -> list[int]:
    """Return the nodes of a route."""
    links = fabric.route(source, target)
    assert links[0].start == source and links[-1].end == target
    assert all(before.end == after.start for before, after in pairwise(links))
    return [source, *(link.end for link in links)]


def test_a_message_on_a_grid_moves_along_dimension_0_first() -> None:
    mesh, torus = (Grid((4, 3), (50.0, 25.0), (500.0, 700.0), wraps) for wraps in (False, True))
    assert nodes(mesh, 0, 7) == [0, 1, 2, 3, 7]
    assert nodes(mesh, 11, 0) == [11, 10, 9, 8, 4, 0]
    assert nodes(torus, 0, 7) == [0, 3, 7]
    # Two equal ways: upwards. The shorter way in dimension 1 wraps.
    assert nodes(torus, 1, 3) == [1, 2, 3] and nodes(torus, 3, 1) == [3, 0, 1]
    assert nodes(torus, 0, 8) == [0, 8]
    assert [(link.bandwidth, link.latency) for link in mesh.route(3, 7)] == [(25.0, 700.0)]
    assert {(link.bandwidth, link.latency) for link in mesh.route(0, 3)} == {(50.0, 500.0)}


@quick
@given(st.lists(st.integers(2, 5), min_size=1, max_size=3), st.booleans(), st.data())
def test_the_routes_of_a_grid_are_the_shortest(sizes: list[int], wraps: bool, data: st.DataObject) -> None:
    one = Grid(sizes, [1.0] * len(sizes), [0.0] * len(sizes), wraps)
    source, target = (data.draw(st.integers(0, one.ranks - 1)) for _ in range(2))
    hops, stride = 0, 1
    for size in sizes:
        distance = abs(source // stride % size - target // stride % size)
        hops += min(distance, size - distance) if wraps else distance
        stride *= size
    assert source == target or len(nodes(one, source, target)) - 1 == hops


def test_a_torus_of_one_dimension_is_a_ring() -> None:
    ring = DimensionFabric(Dimension(Topology.RING, 6, 50.0, 500.0))
    torus = Grid((6,), (50.0,), (500.0,), True)
    for source in range(6):
        for target in range(6):
            assert source == target or ring.route(source, target) == torus.route(source, target)


def test_a_fat_tree_goes_up_only_as_far_as_it_must_and_spreads_over_its_ways() -> None:
    one = FatTree(4, 50.0, 500.0)
    assert one.ranks == 16
    assert [one.name(node) for node in (3, 16, 24, 32, 35)] == [
        "3", "edge 0", "aggregation 0", "core 0", "core 3",
    ]  # fmt: skip
    assert nodes(one, 0, 1) == [0, 16, 1]
    assert len(nodes(one, 0, 2)) == 5 and len(nodes(one, 0, 15)) == 7
    cores = Counter[int]()
    pairs: set[tuple[int, int]] = set()
    for source in range(16):
        for target in range(16):
            if source != target:
                path = nodes(one, source, target)
                pairs |= set(pairwise(path))
                cores.update(node for node in path if node >= 32)
                assert nodes(one, source, target) == path
    # 16 ranks, 8 edge, 8 aggregation and 4 core switches have 48 links in each direction.
    assert len(pairs) == 96
    assert sorted(cores) == [32, 33, 34, 35] and min(cores.values()) > 192 / 4 * 0.6


def test_a_fat_tree_as_a_graph_has_paths_of_the_same_length() -> None:
    tree = FatTree(4, 50.0, 500.0)
    pairs = {
        (link.start, link.end): link
        for source in range(16)
        for target in range(16)
        if source != target
        for link in tree.route(source, target)
    }
    graph = LinkGraph(16, [str(node) for node in range(20)], list(pairs.values()), hashes=True)
    cores = set()
    for source in range(16):
        for target in range(16):
            if source != target:
                assert len(nodes(graph, source, target)) == len(nodes(tree, source, target))
                cores |= {node for node in nodes(graph, source, target) if node >= 32}
    assert cores == {32, 33, 34, 35}


def test_the_first_link_of_the_file_wins_a_tie() -> None:
    links = [Link(*pair, 1.0, 0.0) for pair in ((0, 3), (0, 2), (2, 1), (3, 1), (1, 0))]
    assert nodes(LinkGraph(2, ["a", "b"], links), 0, 1) == [0, 3, 1]
    assert nodes(LinkGraph(2, ["a", "b"], links[1:] + links[:1]), 0, 1) == [0, 2, 1]


def test_a_given_route_replaces_the_shortest_path() -> None:
    network = {
        "type": "graph",
        "npus_count": 3,
        "links": [
            {"from": one, "to": other, "bandwidth_GBps": 50, "latency_ns": 500, "duplex": True}
            for one, other in ((0, 1), (1, 2), (2, 0))
        ],
        "routes": [[0, 2, 1]],
    }
    body = {
        "backend": "aware",
        "network": network,
        "system": {"preferred-dataset-splits": 1, "local-mem-bw": 50},
        "workload": {
            "per_rank": [
                [{"id": 1, "type": "send", "dst": 1, "comm_size": 1 << 20, "tag": 0}],
                [{"id": 1, "type": "recv", "src": 0, "comm_size": 1 << 20, "tag": 0}],
                [{"id": 1, "type": "comp", "duration_us": 0}],
            ]
        },
    }
    result = run(simulation(body))
    # Two hops take twice the 20,031 ns of one.
    assert result.ranks[1] is not None and result.ranks[1].finish == 40_062
    assert [one.name for one in result.links] == ["0 -> 2", "2 -> 1"]
    assert result.links[0].bytes == 1 << 20
    assert result.links[0].utilisation == pytest.approx(19_531 / 40_062, rel=1e-4)


def test_all_ranks_use_the_logical_dimensions_of_a_torus() -> None:
    body = {
        "backend": "aware",
        "network": {"type": "torus", "npus_count": [4, 4], "bandwidth_GBps": [50, 25], "latency_ns": 500},
        "system": {
            "preferred-dataset-splits": 1,
            "local-mem-bw": 50,
            "endpoint-delay": 10,
            "all-reduce-implementation": ["ring", "ring"],
            "collective-optimization": "localBWAware",
        },
        "workload": {
            "all_ranks": [{"id": 1, "type": "coll", "comm_type": "all_reduce", "comm_size": 1 << 20}]
        },
    }
    body["npus"] = 16
    result = run(simulation(body))
    # Each phase is a ring of neighbours, so the dimensions without congestion have the same times.
    flat = {
        **body,
        "backend": "unaware",
        "network": {
            "topology": ["Ring", "Ring"],
            "npus_count": [4, 4],
            "bandwidth_GBps": [50, 25],
            "latency_ns": [500, 500],
        },
    }
    assert result.ranks == run(simulation(flat)).ranks
    assert result.ranks == run(simulation({**body, "backend": "fairShare"})).ranks
    # In dimension 0 three quarters of the bytes move one way, in the reduce-scatter, and then the other way.
    assert result.links[0].bytes == 3 * (1 << 18)
