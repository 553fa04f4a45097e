"""Tests of bad networks of links: the error names the field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_controllers.astrasim.parsing.graph import MOST_LINKS
from convoy_controllers.astrasim.parsing.simulation import simulation

FACTS: Any = {"bandwidth_GBps": 50, "latency_ns": 500}
GRAPH: Any = {
    "type": "graph",
    "npus_count": 3,
    "switches": ["s"],
    "links": [{"from": rank, "to": "s", "duplex": True, **FACTS} for rank in range(3)],
    "routes": [[0, "s", 1]],
}
MESH: Any = {"type": "mesh", "npus_count": [3, 2], **FACTS}
TREE: Any = {"type": "fatTree", "k": 4, **FACTS}


def body(network: Any, **fields: Any) -> Any:
    """Return a simulation on a network."""
    return {
        "backend": "fairShare",
        "network": network,
        "system": {"preferred-dataset-splits": 1, "local-mem-bw": 50},
        "workload": {"all_ranks": [{"id": 1, "type": "comp", "duration_us": 1}]},
        **fields,
    }


def changed(network: Any, path: str, value: Any) -> Any:
    """Return a network with another value at a path; None removes the field."""
    found = copy.deepcopy(network)
    *parents, last = [int(one) if one.isdigit() else one for one in path.split("/")]
    target = found
    for one in parents:
        target = target[one]
    target[last] = value
    return found


def link(start: Any, end: Any) -> Any:
    """Return a directed link."""
    return {"from": start, "to": end, **FACTS}


@pytest.mark.parametrize(
    ("network", "path", "value", "message"),
    [
        (GRAPH, "type", "cube", 'type: must be one of mesh, torus, fatTree, graph, is "cube"'),
        (GRAPH, "npus_count", 1, "npus_count: must be from 2 to 65536, is 1"),
        (GRAPH, "npus_count", 4, "links: there is no way from rank 0 to rank 3"),
        (GRAPH, "npus_count", 2, "links[2].from: must be from 0 to 1, is 2"),
        (GRAPH, "hops", 1, "hops: there is no such field"),
        (GRAPH, "switches", ["s", "s"], "switches[1]: another switch is also named 's'"),
        (GRAPH, "switches", [""], "switches[0]: needs 1 to 253 characters, has 0"),
        (GRAPH, "switches", [1], "switches[0]: must be text, is 1"),
        (GRAPH, "links", [], "routes[0]: has no link from entry 0 to entry 1"),
        (GRAPH, "links", {}, "links: must be a list, is a mapping"),
        (GRAPH, "links/1/to", "t", "links[1].to: there is no switch 't' in network.switches"),
        (GRAPH, "links/1/to", None, "links[1].to: is required"),
        (GRAPH, "links/1/to", 1, "links[1]: connects a node with itself"),
        (GRAPH, "links/1/to", 1.5, "links[1].to: must be a whole number, is 1.5"),
        (GRAPH, "links/1/from", 0, "links[1]: another link already connects these nodes"),
        (GRAPH, "links/1/bandwidth_GBps", 0, "links[1].bandwidth_GBps: must be above 0, is 0"),
        (GRAPH, "links/1/bandwidth_GBps", -1, "links[1].bandwidth_GBps: must be above 0, is -1"),
        (GRAPH, "links/1/bandwidth_GBps", float("nan"), "links[1].bandwidth_GBps: must be at most"),
        (GRAPH, "links/1/bandwidth_GBps", 1e-300, "links[1].bandwidth_GBps: must be at least 1e-06"),
        (GRAPH, "links/1/latency_ns", -1, "links[1].latency_ns: must be at least 0, is -1"),
        (GRAPH, "links/1/latency_ns", float("inf"), "links[1].latency_ns: must be at most"),
        (GRAPH, "links/2/duplex", False, "links: there is no way from rank 0 to rank 2"),
        (GRAPH, "links/1/up", True, "links[1].up: there is no such field"),
        (GRAPH, "routing", "random", 'routing: must be one of first, ecmp, is "random"'),
        (GRAPH, "routes/0", [0, 1], "routes[0]: has no link from entry 0 to entry 1"),
        (GRAPH, "routes/0", [0, "s"], "routes[0]: must lead from a rank to a rank"),
        (GRAPH, "routes/0", [0], "routes[0]: must lead from a rank to a rank"),
        (GRAPH, "routes/0", [0, "s", 0], "routes[0]: visits a node twice"),
        (GRAPH, "routes/0", [0, "t", 1], "routes[0][1]: there is no switch 't'"),
        (GRAPH, "routes", [[0, "s", 1]] * 2, "routes[1]: there is another route from rank 0 to rank 1"),
        (GRAPH, "dimensions", [2, 2], "dimensions: must have the product 3, the number of ranks, has 4"),
        (MESH, "npus_count", [1, 2], "npus_count[0]: must be from 2 to 65536, is 1"),
        (MESH, "npus_count", [2] * 5, "npus_count: needs 1 to 4 dimensions, has 5"),
        (MESH, "npus_count", [1024, 1024], "npus_count: may be at most 65536 ranks in all, are 1048576"),
        (MESH, "bandwidth_GBps", [50], "bandwidth_GBps: needs one number, or 2, one for each dimension"),
        (MESH, "latency_ns", [1, "a"], 'latency_ns[1]: must be a number, is "a"'),
        (MESH, "k", 4, "k: there is no such field"),
        (TREE, "k", 5, "k: must be even, is 5"),
        (TREE, "k", 66, "k: must be from 2 to 64, is 66"),
        (TREE, "bandwidth_GBps", float("inf"), "bandwidth_GBps: must be at most"),
        (TREE, "dimensions", [4, 5], "dimensions: must have the product 16, the number of ranks, has 20"),
    ],
)
def test_an_invalid_network_is_refused_with_its_path(
    network: Any, path: str, value: Any, message: str
) -> None:
    simulation(body(network))
    with pytest.raises(InvalidInput) as caught:
        simulation(body(changed(network, path, value)))
    assert str(caught.value).startswith(f"network.{message}")


def test_a_way_in_one_direction_is_not_enough() -> None:
    ring = {"type": "graph", "npus_count": 3, "links": [link(0, 1), link(1, 2), link(2, 0)]}
    simulation(body(ring))
    with pytest.raises(InvalidInput, match=r"^network\.links: there is no way from rank 0 to rank 2"):
        simulation(body({**ring, "links": [link(2, 0), link(0, 1), link(1, 0)]}))
    with pytest.raises(InvalidInput, match=r"^network\.links: there is no way from rank 2 to rank 0"):
        simulation(body({**ring, "links": [link(0, 1), link(1, 0), link(1, 2)]}))


def test_a_workload_must_have_the_ranks_of_the_graph() -> None:
    lists = {"per_rank": [[{"id": 1, "type": "comp"}]] * 2}
    with pytest.raises(InvalidInput, match=r"^workload\.per_rank: needs 3 lists, one for each rank, has 2"):
        simulation(body(GRAPH, workload=lists))
    with pytest.raises(InvalidInput, match=r"^npus: must be 3, the number of ranks of the network"):
        simulation(body(GRAPH, npus=4))


def test_a_graph_has_a_bounded_number_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_LINKS == 500_000
    monkeypatch.setattr("convoy_controllers.astrasim.parsing.graph.MOST_LINKS", 5)
    with pytest.raises(InvalidInput, match=r"^network\.links: may be at most 5, counted by direction"):
        simulation(body(GRAPH))


def test_the_fair_share_network_of_dimensions_has_one() -> None:
    wide = {"topology": ["Ring"] * 2, "npus_count": [2] * 2, "bandwidth_GBps": [1] * 2, "latency_ns": [1] * 2}
    with pytest.raises(InvalidInput, match=r"^network\.topology: the fair-share network has one dimension"):
        simulation(body(wide))
