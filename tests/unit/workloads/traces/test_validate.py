"""Tests of the checks of traces: each rule with a trace that breaks it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.cases import cases
from tests.unit.workloads.traces.build import FIXTURES, collective, comp, node, recv, send, trace

from convoy_workloads.traces.attributes import set_attributes
from convoy_workloads.traces.findings import MAX_FINDINGS, Rule
from convoy_workloads.traces.trace import Collective, NodeType, Trace
from convoy_workloads.traces.validate import all_ranks
from convoy_workloads.traces.validate.all_ranks import check_ranks
from convoy_workloads.traces.validate.cycles import cycles
from convoy_workloads.traces.validate.one_trace import check_trace
from convoy_workloads.traces.wire.chakra_pb2 import AttributeProto, Node
from convoy_workloads.traces.wire.reader import read_whole


def again(made: Node, **field: Any) -> Node:
    made.attr.append(AttributeProto(**field))
    return made


def late(**times: int) -> Node:
    return Node(id=1, name="late", type=int(NodeType.COMP), **times)


def bare(kind: int) -> Node:
    return Node(id=1, name="bare", type=kind)


@pytest.mark.parametrize(
    ("nodes", "rule", "id", "text"),
    [
        ([comp(1), comp(2), comp(1)], Rule.DUPLICATE_ID, 1, "node 1"),
        ([comp(1), comp(2, deps=(9,))], Rule.DANGLING_DEPENDENCY, 2, "data_deps: node 9"),
        ([comp(2), Node(id=3, type=4, ctrl_deps=[7, 7])], Rule.DANGLING_DEPENDENCY, 3, "ctrl_deps: node 7"),
        ([comp(5, deps=(5,))], Rule.CYCLE, 5, "1 node(s) depend on each other: 5 -> 5"),
        (
            [comp(1), comp(2, deps=(4, 1)), comp(3, deps=(2,)), comp(4, deps=(3,))],
            Rule.CYCLE, 2, "3 node(s) depend on each other: 2 -> 4 -> 3 -> 2",
        ),
        ([bare(0)], Rule.UNKNOWN_TYPE, 1, "type 0"),
        ([bare(99)], Rule.UNKNOWN_TYPE, 1, "type 99"),
        ([late(start_time_micros=2**64 - 5)], Rule.NEGATIVE_TIME, 1, "start_time_micros is -5"),
        ([late(duration_micros=2**63)], Rule.NEGATIVE_TIME, 1, f"duration_micros is {-(2**63)}"),
        ([late(start_time_micros=2**62, duration_micros=2**62)], Rule.NEGATIVE_TIME, 1, "beyond 64 bits"),
        ([comp(1, num_ops=-1)], Rule.NEGATIVE_VALUE, 1, "num_ops is -1"),
        ([collective(1, size=-64)], Rule.NEGATIVE_VALUE, 1, "comm_size is -64"),
        ([send(1, 0, -1)], Rule.NEGATIVE_VALUE, 1, "comm_dst is -1"),
        ([comp(1, host_gap_us=-3)], Rule.NEGATIVE_VALUE, 1, "host_gap_us is -3"),
        ([again(comp(1), name="is_cpu_op", bool_val=True)], Rule.DUPLICATE_ATTRIBUTE, 1, "is_cpu_op"),
        ([bare(NodeType.COLLECTIVE)], Rule.MISSING_ATTRIBUTE, 1, "COLLECTIVE needs the attribute comm_type"),
        ([bare(NodeType.SEND)], Rule.MISSING_ATTRIBUTE, 1, "a SEND needs the attribute comm_dst"),
        ([bare(NodeType.RECV)], Rule.MISSING_ATTRIBUTE, 1, "a RECV needs the attribute comm_src"),
        ([collective(1, 10)], Rule.UNKNOWN_COLLECTIVE, 1, "comm_type 10"),  # type: ignore[arg-type]
        ([collective(1, is_cpu_op=True)], Rule.CPU_COMMUNICATION, 1, "is_cpu_op"),
    ],
)  # fmt: skip
def test_one_trace(nodes: list[Node], rule: Rule, id: int, text: str) -> None:
    found = check_trace(trace(*nodes, rank=3))
    assert (found[0].rule, found[0].node, found[0].rank) == (rule, id, 3)
    assert text in found[0].text
    assert {one.rule for one in found} == {rule}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("is_cpu_op", {"bool_val": True}, {"int32_val": 1}),
        ("num_ops", {"int64_val": 3}, {"uint64_val": 3}),
        ("tensor_size", {"uint64_val": 3}, {"int64_val": 3}),
        ("comm_type", {"int64_val": 0}, {"int32_val": 0}),
        ("comm_size", {"int64_val": 3}, {"uint64_val": 3}),
        ("comm_priority", {"int32_val": 3}, {"int64_val": 3}),
        ("comm_src", {"int32_val": 3}, {"uint32_val": 3}),
        ("comm_dst", {"int32_val": 3}, {"int64_val": 3}),
        ("comm_tag", {"int32_val": 3}, {"int64_val": 3}),
        ("pg_name", {"string_val": "0"}, {"bytes_val": b"0"}),
        ("step", {"int64_val": 3}, {"int32_list": {"values": [3, 4]}}),
    ],
)
def test_a_known_attribute_has_its_own_field(name: str, right: dict[str, Any], wrong: dict[str, Any]) -> None:
    """ASTRA-sim's feeder silently reads 0 from any other field."""
    assert check_trace(trace(again(bare(4), name=name, **right))) == []
    for field in (wrong, {}):
        found = check_trace(trace(again(bare(4), name=name, **field)))
        assert [one.rule for one in found] == [Rule.WRONG_FIELD]
        assert next(iter(right)) in found[0].text


def test_findings_of_one_rule_are_bounded() -> None:
    found = check_trace(trace(*(comp(number, num_ops=-number) for number in range(1, MAX_FINDINGS + 8))))
    assert len(found) == MAX_FINDINGS + 1
    assert found[-1].text.startswith("7 more")


def test_the_same_fault_at_many_nodes_is_one_finding() -> None:
    (found,) = check_trace(trace(*(comp(number, num_ops=-1) for number in range(1, 51)), rank=3))
    assert (found.rank, found.node) == (3, 1)
    assert found.text == "attribute num_ops is -1 (50 times, also at node 2, 3, 4, 5, 6 ...)"


def test_foreign_names_in_findings_are_short() -> None:
    nodes = [comp(1), comp(1)]
    nodes[0].name = "x" * 2**20
    nodes[1].attr.extend([AttributeProto(name="y" * 2**20)] * 2)
    found = check_trace(trace(*nodes))
    assert [one.rule for one in found] == [Rule.DUPLICATE_ID, Rule.DUPLICATE_ATTRIBUTE]
    assert all(len(one.text) <= 400 for one in found)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"world_size": 0}, "attribute world_size of the trace is 0; it must be from 1 to 1000000"),
        ({"world_size": 2**62}, f"attribute world_size of the trace is {2**62}"),
        ({"rank": -1}, "attribute rank of the trace is -1"),
        ({"rank": 1_000_000}, "it must be from 0 to 999999"),
    ],
)
def test_the_number_of_ranks_is_bounded(facts: dict[str, int], text: str) -> None:
    one = trace(comp(1))
    set_attributes(one.metadata, **facts)
    assert [found.rule for found in check_trace(one)] == [Rule.OUT_OF_RANGE]
    assert text in check_trace(one)[0].text


def test_a_communication_of_no_bytes_is_a_finding() -> None:
    kinds = (Collective.BARRIER, Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER)
    assert check_trace(trace(*(collective(id, kind, 0) for id, kind in enumerate(kinds)))) == []
    found = check_trace(trace(collective(1, size=0), send(2, 0, 1, size=0)))
    assert [(one.rule, one.node) for one in found] == [(Rule.EMPTY_COMMUNICATION, id) for id in (1, 2)]


def test_each_group_of_cycles_is_found() -> None:
    """The second cycle depends on the first, and a node lies between them."""
    first = [comp(1, deps=(2,)), comp(2, deps=(1,))]
    between = [comp(5, deps=(1,))]
    second = [comp(3, deps=(4, 5)), comp(4, deps=(3, 1))]
    assert list(cycles([*second, *between, *first])) == [[1, 2], [3, 4]]


def test_a_long_chain_needs_no_deep_stack() -> None:
    count = 5000
    chain = [comp(number, deps=(number + 1,)) for number in range(count)]
    assert list(cycles([*chain, comp(count)])) == []
    (cycle,) = cycles([*chain, comp(count, deps=(0,))])
    assert cycle == list(range(count + 1))


def test_random_graphs_have_a_cycle_if_no_order_exists() -> None:
    chance = random.Random(3)
    seen = set()
    for _ in range(cases(1000)):
        count = chance.randint(1, 7)
        edges = {
            (chance.randrange(count), chance.randrange(count)) for _ in range(chance.randint(0, count + 2))
        }
        nodes = [comp(one, deps=tuple(b for a, b in edges if a == one)) for one in range(count)]
        found = list(cycles(nodes))
        for cycle in found:
            assert all(
                (one, other) in edges for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
            )
        assert bool(found) is not _orderable(count, edges)
        seen.add(len(found))
    assert {0, 1, 2} <= seen


def _orderable(count: int, edges: set[tuple[int, int]]) -> bool:
    left = set(range(count))
    while free := {one for one in left if not any((one, other) in edges for other in left)}:
        left -= free
    return not left


def ranks(*listed: list[Node], groups: str | None = None) -> list[Trace]:
    traces = [trace(*nodes, rank=rank) for rank, nodes in enumerate(listed)]
    for one in traces:
        set_attributes(one.metadata, process_groups=groups)
    return traces


ONE = collective(1, Collective.ALL_REDUCE, 64)
OTHER = collective(2, Collective.BROADCAST)
DIFFERS = Rule.COLLECTIVE_MISMATCH


@pytest.mark.parametrize(
    ("traces", "rule", "rank", "id", "text"),
    [
        (ranks([ONE], [OTHER]), DIFFERS, 1, 2, "collective 1 is BROADCAST of 64"),
        (ranks([ONE], [collective(2, size=32)]), DIFFERS, 1, 2, "ALL_REDUCE of 32 bytes, but on rank 0"),
        (ranks([ONE], [ONE, collective(2)]), DIFFERS, 1, 2, "2 collectives, but rank 0 has 1"),
        (ranks([ONE, collective(2)], [ONE]), DIFFERS, 1, None, "1 collectives, but rank 0 has 2"),
        (ranks([ONE], []), DIFFERS, 1, None, "0 collectives, but rank 0 has 1"),
        (ranks([ONE], [ONE], [collective(9, size=8)]), DIFFERS, 2, 9, "8 bytes"),
        (
            ranks([collective(1, group="a"), collective(2, size=8, group="a")],
                  [collective(3, size=8, group="a"), collective(4, group="a")]),
            DIFFERS, 1, 3, "group 'a': collective 1 is ALL_REDUCE of 8",
        ),
        (
            ranks([collective(1, group="a")], [], [collective(1, group="a")], groups='{"a": [0, 1]}'),
            DIFFERS, 1, None, "0 collectives",
        ),
        (ranks([ONE], [ONE], groups='{"": [0, 1, 2]}'), Rule.MISSING_RANK, 2, None, "no trace: 2"),
        (
            ranks([ONE], [ONE], groups=f'{{"": {list(range(900))}}}'),
            Rule.MISSING_RANK, 2, None, "no trace: 2, 3, 4, 5, 6 and 893 more",
        ),
        (ranks([send(1, 0, 1)], []), Rule.UNMATCHED_SEND, 0, 1, "rank 1 has no such receive"),
        (ranks([send(1, 0, 7)], []), Rule.UNMATCHED_SEND, 0, 1, "no trace of rank 7"),
        (ranks([], [recv(4, 0, 1)]), Rule.UNMATCHED_RECV, 1, 4, "rank 0 has no such send"),
        (ranks([send(1, 0, 1), send(2, 0, 1)], [recv(1, 0, 1)]), Rule.UNMATCHED_SEND, 0, 2, "no such rec"),
        ([trace(ONE, rank=0), trace(ONE, rank=1), trace(ONE, rank=1)], Rule.DUPLICATE_RANK, 1, None, "two"),
    ],
)  # fmt: skip
def test_all_ranks(traces: list[Trace], rule: Rule, rank: int, id: int | None, text: str) -> None:
    (found,) = check_ranks(traces)
    assert (found.rule, found.rank, found.node) == (rule, rank, id)
    assert text in found.text


def test_a_rank_that_a_group_lists_often_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    compare = all_ranks._difference
    monkeypatch.setattr(all_ranks, "_difference", lambda *calls: compared.append(1) or compare(*calls))
    (found,) = check_ranks(ranks([ONE], [OTHER], groups=f'{{"": {[0, 1] * 1000}}}'))
    assert (found.rule, found.rank, len(compared)) == (DIFFERS, 1, 1)


@pytest.mark.parametrize(
    ("sent", "received"),
    [(send(1, 0, 1, tag=5), recv(1, 0, 1, tag=6)), (send(1, 0, 1, size=8), recv(1, 0, 1, size=16))],
)
def test_tag_and_size_of_a_message_must_agree(sent: Node, received: Node) -> None:
    assert [one.rule for one in check_ranks(ranks([sent], [received]))] == [
        Rule.UNMATCHED_RECV,
        Rule.UNMATCHED_SEND,
    ]


@pytest.mark.parametrize(
    "traces",
    [
        ranks([ONE], [collective(7)]),
        ranks(*([collective(1, Collective.ALL_TO_ALL, size)] for size in (8, 24))),
        ranks(*([collective(1, group=one), collective(2, group=other)] for one, other in ("ab", "ba"))),
        ranks([collective(1, group="a")], [collective(1, group="a")], [collective(1, group="b")]),
        ranks([send(1, 0, 1), recv(2, 1, 0)], [send(1, 1, 0), recv(2, 0, 1)]),
        [trace(ONE, rank=0)],
        [trace(ONE), trace()],
    ],
)  # fmt: skip
def test_agreement_is_no_finding(traces: list[Trace]) -> None:
    assert check_ranks(traces) == []


@pytest.mark.parametrize(("prefix", "count"), [("all_reduce", 4), ("custom_allreduce", 8)])
def test_upstreams_samples_are_valid(prefix: str, count: int) -> None:
    traces = [read_whole(path) for path in sorted((FIXTURES / "astra_sim").glob(f"{prefix}.*"))]
    assert len(traces) == count
    assert [one for each in traces for one in check_trace(each)] == []
    assert check_ranks(traces) == []
    # A changed sample is not valid: the comparison has compared something.
    traces[1].nodes[0].attr[1].int64_val += 1
    assert check_ranks(traces) != []


def test_a_node_of_each_type_is_valid() -> None:
    nodes = [node(kind, int(kind), comm_type=0, comm_size=8, comm_src=0, comm_dst=0) for kind in NodeType]
    assert check_trace(trace(*nodes)) == []
