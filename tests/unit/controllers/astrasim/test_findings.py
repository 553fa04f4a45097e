"""Tests of bad input: the finding names the field, or the rank and the node."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_controllers.astrasim import size
from convoy_controllers.astrasim.oracle import Case, play
from convoy_controllers.astrasim.oracle import cases as cases_of
from convoy_controllers.astrasim.parsing.fields import InvalidInput
from convoy_controllers.astrasim.parsing.simulation import simulation
from convoy_controllers.astrasim.result import FindingKind
from convoy_controllers.astrasim.run import run

COLLECTIVE: Any = {"id": 1, "type": "coll", "comm_type": "all_reduce", "comm_size": 1048576}
BODY: Any = {
    "id": "a",
    "npus": 4,
    "backend": "unaware",
    "network": {"topology": ["Ring"], "npus_count": [4], "bandwidth_GBps": [50.0], "latency_ns": [500.0]},
    "system": {
        "preferred-dataset-splits": 4,
        "local-mem-bw": 50,
        "all-reduce-implementation": ["ring"],
        "all-to-all-implementation": ["halvingDoubling"],
    },
    "comm_groups": {"1": [0, 1], "2": [2]},
    "workload": {"all_ranks": [COLLECTIVE]},
}


def changed(path: str, value: Any) -> Any:
    """Return the body with another value at a path; None removes the field."""
    body = copy.deepcopy(BODY)
    *parents, last = path.split("/")
    target = body
    for one in parents:
        target = target[int(one) if one.isdigit() and isinstance(target, list) else one]
    if value is None:
        del target[last]
    elif isinstance(target, list):
        target[int(last)] = value
    else:
        target[last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("network", None, "network: is required"),
        ("network", [], "network: must be a mapping, is a list"),
        ("network/topology", "Ring", 'network.topology: must be a list, is "Ring"'),
        ("network/topology/0", "Torus", "network.topology[0]: must be one of Ring, FullyConnected, Switch"),
        ("network/npus_count/0", 1, "network.npus_count[0]: must be from 2 to 65536, is 1"),
        ("network/npus_count/0", True, "network.npus_count[0]: must be a whole number, is true"),
        ("network/npus_count", [4, 4], "network.npus_count: needs 1 entries, one for each topology, has 2"),
        ("network/bandwidth_GBps/0", 0, "network.bandwidth_GBps[0]: must be above 0, is 0"),
        ("network/bandwidth_GBps/0", float("nan"), "network.bandwidth_GBps[0]: must be at most"),
        ("network/bandwidth_GBps/0", 10**400, "network.bandwidth_GBps[0]: must be at most"),
        ("network/latency_ns/0", -1, "network.latency_ns[0]: must be at least 0, is -1"),
        ("network/hops", 1, "network.hops: there is no such field"),
        ("backend", "ns3", 'backend: must be one of unaware, aware, fairShare, is "ns3"'),
        ("npus", 5, "npus: must be 4, the number of ranks of the network"),
        ("system/preferred-dataset-splits", 0, "system.preferred-dataset-splits: must be from 1 to 100000"),
        ("system/local-mem-bw", 0, "system.local-mem-bw: must be above 0, is 0"),
        ("system/local-mem-bw", 1e-300, "system.local-mem-bw: must be at least 1e-06, is 1e-300"),
        ("system/peak-perf", 1e-300, "system.peak-perf: must be 0 or at least 1e-09, is 1e-300"),
        ("system/local-mem-bw", None, "system.local-mem-bw: is required"),
        ("system/all-reduce-implementation/0", "tree", "system.all-reduce-implementation[0]: there is no"),
        ("system/all-reduce-implementation/0", "direct0", "system.all-reduce-implementation[0]: there is no"),
        ("system/all-reduce-implementation", ["ring"] * 2, "system.all-reduce-implementation: has 2"),
        ("system/scheduling-policy", "RANDOM", "system.scheduling-policy: must be one of LIFO, FIFO"),
        ("system/roofline-enabled", 2, "system.roofline-enabled: must be true or false, is 2"),
        ("system/active-chunks", 2, "system.active-chunks: there is no such field"),
        ("options", {"num-queues-per-dim": 0}, "options.num-queues-per-dim: must be from 1 to 1024, is 0"),
        ("comm_groups", {"0": [0]}, "comm_groups.0: the number of a communication group must be"),
        ("comm_groups", {"1": [0, 4]}, "comm_groups.1[1]: must be from 0 to 3, is 4"),
        ("comm_groups", {"1": [0, 0]}, "comm_groups.1: needs at least one rank, and each rank once"),
        ("workload", {}, "workload: needs either all_ranks or per_rank"),
        ("workload", {"per_rank": [[]]}, "workload.per_rank: needs 4 lists, one for each rank, has 1"),
        ("workload/all_ranks/0/type", "load", "workload.all_ranks[0].type: must be one of comp, coll"),
        ("workload/all_ranks/0/comm_type", "gather", "workload.all_ranks[0].comm_type: must be one of"),
        ("workload/all_ranks/0/comm_size", -1, "workload.all_ranks[0].comm_size: must be from 0 to"),
        ("workload/all_ranks/0/is_cpu_op", True, "workload.all_ranks[0].is_cpu_op: a communication"),
        ("workload/all_ranks/0/deps", [-1], "workload.all_ranks[0].deps[0]: must be from 0 to"),
        ("workload/all_ranks/0/tag", 1, "workload.all_ranks[0].tag: there is no such field"),
        (
            "workload/all_ranks/0",
            {"id": 1, "type": "send", "src": 0, "dst": 1, "comm_size": 1},
            "workload.all_ranks[0].src: a list of nodes for all ranks cannot name the own rank",
        ),
        (
            "workload",
            {"per_rank": [[{"id": 1, "type": "recv", "src": 1, "dst": 2, "comm_size": 1}], [], [], []]},
            "workload.per_rank[0][0].dst: must be 0, the rank of the node, is 2",
        ),
        ("extra", 1, "extra: there is no such field"),
    ],
)  # fmt: skip
def test_an_invalid_field_is_refused_with_its_path(path: str, value: Any, message: str) -> None:
    simulation(BODY)
    with pytest.raises(InvalidInput) as caught:
        simulation(changed(path, value))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("body", [None, [], "a", 1])
def test_what_is_no_mapping_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a mapping"):
        simulation(body)


def test_the_network_with_congestion_has_one_dimension_and_no_ring_of_two() -> None:
    wide = changed("backend", "aware")
    wide["network"] = {
        "topology": ["Ring", "Switch"], "npus_count": [2, 2], "bandwidth_GBps": [1, 1], "latency_ns": [1, 1]
    }  # fmt: skip
    with pytest.raises(InvalidInput, match=r"^network.topology: the congestion-aware network has one"):
        simulation(wide)
    two = changed("backend", "aware")
    two |= {"npus": 2, "network": {**BODY["network"], "npus_count": [2]}, "comm_groups": {}}
    with pytest.raises(InvalidInput, match=r"^network.npus_count: a congestion-aware Ring needs at least 3"):
        simulation(two)


def findings(*ranks: list[dict[str, Any]], **changes: Any) -> list[str]:
    """Return the findings of a run of four ranks. Ranks without a list compute for no time."""
    idle = [{"id": 900, "type": "comp"}]
    lists = [*ranks, *([idle] * (4 - len(ranks)))]
    body = {**BODY, "workload": {"per_rank": lists}, "result": {"status": "stuck"}}
    body["system"] = {**BODY["system"], **changes}
    (case,) = cases_of({"cases": [body]})
    return [str(one) for one in play(case).findings]


SEND = {"id": 1, "type": "send", "dst": 1, "comm_size": 64, "tag": 5}
RECEIVE = {"id": 1, "type": "recv", "src": 0, "comm_size": 64, "tag": 5}


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[]], "InvalidNode: rank 0: the rank has no nodes"),
        ([[SEND, SEND], [RECEIVE]], "InvalidNode: rank 0, node 1: another node of the rank has the same id"),
        ([[{**SEND, "deps": [9]}]], "InvalidNode: rank 0, node 1: depends on node 9, which the rank"),
        ([[{**SEND, "deps": [1]}]], "InvalidNode: rank 0: every node depends on another one"),
        ([[{**SEND, "dst": 4}]], "InvalidNode: rank 0, node 1: names rank 4, but the ranks are 0 to 3"),
        ([[{**SEND, "dst": 0}]], "InvalidNode: rank 0, node 1: a rank cannot send to itself"),
        ([[{**SEND, "comm_size": 0}]], "InvalidNode: rank 0, node 1: a message needs at least one byte"),
        ([[{**COLLECTIVE, "comm_group": 3}]], "InvalidNode: rank 0, node 1: there is no communication group"),
        ([[{**COLLECTIVE, "comm_group": 2}]], "InvalidNode: rank 0, node 1: the rank is not in"),
        (
            [[{**COLLECTIVE, "comm_type": "all_to_all"}]],
            "InvalidNode: rank 0, node 1: halving-doubling has no all-to-all",
        ),
        (
            [[{**COLLECTIVE, "comm_type": "all_gather"}]],
            "InvalidNode: rank 0, node 1: the system names no implementation of all_gather",
        ),
        (
            [[{**COLLECTIVE, "involved_dim": [False]}]],
            "InvalidNode: rank 0, node 1: no dimension with more than one rank takes part",
        ),
        (
            [[SEND], [{**RECEIVE, "comm_size": 65}]],
            "Stuck: rank 1, node 1: waits for 65 bytes from rank 0 with tag 5; messages that nothing waits "
            "for: 64 bytes from rank 0 with tag 5",
        ),
        (
            [[SEND], [{**RECEIVE, "tag": 6}]],
            "Stuck: rank 1, node 1: waits for 64 bytes from rank 0 with tag 6; messages that nothing waits "
            "for: 64 bytes from rank 0 with tag 5",
        ),
        ([[COLLECTIVE], [COLLECTIVE], [COLLECTIVE]], "Stuck: rank 0, node 1: the all_reduce waits for"),
        (
            [[SEND, {**SEND, "id": 2, "deps": [3]}, {**SEND, "id": 3, "deps": [2]}], [RECEIVE]],
            "NeverIssued: rank 0: nodes 2, 3 never run, because they depend on each other",
        ),
    ],
)  # fmt: skip
def test_a_wrong_workload_is_a_finding_of_rank_and_node(ranks: list[Any], message: str) -> None:
    assert findings(*ranks)[0].startswith(message)


def test_an_all_gather_of_fewer_bytes_than_splits_would_never_end() -> None:
    gather = {**COLLECTIVE, "comm_type": "all_gather", "comm_size": 3}
    found = findings(*[[gather]] * 4, **{"all-gather-implementation": ["ring"]})
    assert found == [
        "Endless: rank 0, node 1: an all-gather of 3 bytes cannot be split into 4 chunks: use fewer splits"
    ]


def test_no_event_can_be_due_at_time_0() -> None:
    (found,) = findings(*[[COLLECTIVE]] * 4, **{"endpoint-delay": 0})
    assert found.startswith("Clock: an event is due at time 0")


@pytest.mark.parametrize(("ranks", "place"), [(6, 4), (12, 8)])
def test_a_tree_without_a_power_of_two_names_the_first_rank_without_a_place(ranks: int, place: int) -> None:
    body = changed("system/all-reduce-implementation/0", "doubleBinaryTree")
    body |= {"npus": ranks, "result": {"status": "crashed"}}
    body["network"] = {**BODY["network"], "npus_count": [ranks]}
    (case,) = cases_of({"cases": [body]})
    (found,) = play(case).findings
    assert (found.rank, found.node) == (place, 1) and f"holds {place} of them" in found.message


def test_halving_doubling_without_a_power_of_two_is_stuck() -> None:
    found = findings(
        *[[{**COLLECTIVE, "comm_group": None}]] * 4, **{"all-reduce-implementation": ["halvingDoubling"]}
    )
    assert found == []
    body = changed("system/all-reduce-implementation/0", "halvingDoubling")
    body |= {"npus": 6, "result": {"status": "stuck"}}
    body["network"] = {**BODY["network"], "npus_count": [6]}
    (case,) = cases_of({"cases": [body]})
    assert play(case).findings[0].message == "halving-doubling needs a power of two of ranks, has 6"


def test_a_message_of_no_bytes_is_a_finding() -> None:
    # A chunk has at least one byte per rank, but halving-doubling halves 5 bytes to 2, 1 and 0.
    body = changed("system/all-reduce-implementation", ["ring", "halvingDoubling"])
    body["system"] |= {"preferred-dataset-splits": 6, "collective-optimization": "localBWAware"}
    body |= {"npus": 12, "result": {"status": "aborted"}}
    body["network"] = {
        "topology": ["Ring", "Ring"], "npus_count": [3, 4], "bandwidth_GBps": [1, 1], "latency_ns": [1, 1]
    }  # fmt: skip
    body["workload"] = {"all_ranks": [{**COLLECTIVE, "comm_size": 100}]}
    (case,) = cases_of({"cases": [body]})
    assert str(play(case).findings[0]) == (
        "InvalidNode: rank 0, node 1: a chunk of 5 bytes is too small for halvingDoubling over 4 ranks: "
        "a message would be empty; use fewer splits"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "file: must be a mapping, is a list"),
        ({}, "cases: is required"),
        ({"cases": [{}]}, r"cases\[0\].result: is required"),
        ({"cases": [{"id": "a", "result": {}}]}, r"cases\[0\].result.status: is required"),
    ],
)
def test_a_file_without_the_form_of_cases_is_refused(body: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        list[Case](cases_of(body))


def large(algorithm: str, ranks: int = 65_536, **system: Any) -> Any:
    """Return an all-reduce of many ranks."""
    body = changed("system/all-reduce-implementation/0", algorithm)
    body |= {"npus": ranks}
    body["network"] = {**BODY["network"], "npus_count": [ranks]}
    body["system"] |= system
    return simulation(body)


@pytest.mark.parametrize(
    ("algorithm", "system"),
    [
        ("halvingDoubling", {"preferred-dataset-splits": 100}),
        ("halvingDoubling", {"preferred-dataset-splits": 100_000}),
        ("oneDirect", {}),
    ],
)
def test_a_run_that_does_not_fit_in_memory_is_refused_before_it_is_built(algorithm: str, system: Any) -> None:
    (found,) = run(large(algorithm, **system), collapse=False).findings
    assert found.kind is FindingKind.TOO_LARGE
    assert "65,536 ranks needs about" in found.message and "one is played for all" in found.message


def test_ranks_that_are_alike_fit_because_one_is_played_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "MOST_OBJECTS", 400)
    alike = large("ring", 64)
    assert run(alike).collapsed and run(alike).finished
    assert run(alike, collapse=False).findings[0].kind is FindingKind.TOO_LARGE


def test_a_run_with_fewer_events_than_ranks_is_not_built() -> None:
    body = large("halvingDoubling", **{"preferred-dataset-splits": 1})
    assert [one.kind for one in run(body, events=65_535).findings] == [FindingKind.BUDGET]


NUMBERS = [
    "network/bandwidth_GBps/0",
    "network/latency_ns/0",
    "system/local-mem-bw",
    "system/peak-perf",
    "system/endpoint-delay",
    *(f"system/{one}" for one in ("L", "o", "g", "G", "local-reduction-delay")),
    "options/injection-scale",
    "options/comm-scale",
    "workload/all_ranks/0/num_ops",
    "workload/all_ranks/0/tensor_size",
    "workload/all_ranks/0/duration_us",
    "workload/all_ranks/1/comm_size",
]
EXTREMES = [0, 5e-324, 1e-300, 1e-160, 1e-9, 1e-6, 1.0, 7, 2**53, 1e16, 1e300, 1.7e308]


@pytest.mark.parametrize("path", NUMBERS)
def test_an_extreme_number_gives_figures_or_a_finding_with_its_path(path: str) -> None:
    for number in EXTREMES:
        for bus in (False, True):
            play_extremes({path: number}, "aware", bus, roofline=not bus)


@settings(max_examples=cases(40), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(NUMBERS),
        st.sampled_from(EXTREMES) | st.floats(min_value=0, allow_nan=False),
        min_size=2,
        max_size=5,
    ),
    st.sampled_from(["unaware", "aware", "fairShare"]),
    st.booleans(),
    st.booleans(),
)
def test_extreme_numbers_together_give_figures_or_a_finding_with_a_path(
    numbers: dict[str, float], backend: str, bus: bool, roofline: bool
) -> None:
    play_extremes(numbers, backend, bus, roofline)


def play_extremes(numbers: dict[str, float], backend: str, bus: bool, roofline: bool) -> None:
    """Play a computation and an all-reduce with other numbers at some paths."""
    body = copy.deepcopy(BODY)
    body |= {"backend": backend, "options": {}, "result": {"status": "finished"}}
    body["system"] |= {"model-shared-bus": bus, "roofline-enabled": roofline, "peak-perf": 1}
    computation = {"id": 0, "type": "comp", "duration_us": 1, "num_ops": 1, "tensor_size": 1}
    body["workload"]["all_ranks"] = [computation, {**COLLECTIVE, "comm_size": 1 << 40}]
    for path, number in numbers.items():
        *parents, last = path.split("/")
        target = body
        for one in parents:
            target = target[int(one) if one.isdigit() else one]
        target[int(last) if last == "0" else last] = number
    (case,) = cases_of({"cases": [body]})
    result = play(case)
    assert result.finished or result.findings
    paths = [re.sub(r"/(\d+)", r"[\1]", path).replace("/", ".") for path in numbers]
    for found in result.findings:
        if found.kind is FindingKind.INVALID_INPUT:
            assert any(f"cases[0].{path}: must be" in found.message for path in paths)
