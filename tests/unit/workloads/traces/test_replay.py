"""Tests of replays, models of communication, and figures."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.cases import cases
from tests.unit.workloads.traces.build import collective, comp, node, recv, send, trace

from convoy_workloads.traces.analysis import analyse
from convoy_workloads.traces.comm_models import RingModel, Scaled
from convoy_workloads.traces.findings import InvalidTrace
from convoy_workloads.traces.replay import CommModel, drop_dangling, measured_span, naive_replay, replay
from convoy_workloads.traces.trace import Collective, NodeType, Trace
from convoy_workloads.traces.wire import chakra_pb2, plain
from convoy_workloads.traces.wire.chakra_pb2 import AttributeProto, Node


def step() -> Trace:
    """Return a step: forward 10, backward 20, an all-reduce of 30 beside backward 15, and an update of 5."""
    return trace(
        comp(1, duration=10, step=1),
        comp(2, (1,), 20, step=1),
        collective(3, deps=(2,), duration=30, size=800, group="g", step=1),
        comp(4, (2,), 15, step=1),
        comp(5, (3, 4), 5, step=1),
    )


def test_nodes_start_when_their_dependencies_end() -> None:
    played = replay(step())
    assert [(one.start, one.end) for one in played.played] == [
        (0, 10),
        (10, 30),
        (30, 60),
        (30, 45),
        (60, 65),
    ]
    assert played.span == 65
    assert [one.node.id for one in played.critical_path()] == [1, 2, 3, 5]


def test_figures_of_a_step() -> None:
    found = analyse(replay(step()))
    assert (found.span_us, found.compute_us, found.communication_us, found.exposed_us) == (65, 50, 30, 15)
    assert (found.idle_us, found.critical_compute_us, found.critical_communication_us) == (0, 35, 30)
    assert found.exposed_share == pytest.approx(15 / 65)
    assert (found.steps, found.bytes_per_step) == (1, 800)
    assert [(one.group, one.kind, one.count, one.bytes) for one in found.traffic] == [
        ("g", "ALL_REDUCE", 1, 800)
    ]
    longest = found.operations[0]
    assert (longest.name, longest.kind, longest.count, longest.total_us, longest.critical_us) == (
        "node 3", "ALL_REDUCE", 1, 30, 30,
    )  # fmt: skip


def gpu(id: int, deps: tuple[int, ...], duration: int) -> Node:
    return node(NodeType.COMP, id, deps, duration, is_cpu_op=False)


def gpu_step() -> Trace:
    """Return a step in which the host launches until 5, computes 5-8, then waits for the GPU until 45.

    A product runs at 5-15, an all-reduce at 15-35 beside a product at 15-20, and an update at 35-45.
    """
    return trace(
        comp(1, duration=5),
        comp(2, (1,), 40),
        gpu(3, (1,), 10),
        collective(4, deps=(3,), duration=20),
        gpu(5, (3,), 5),
        gpu(6, (4, 5), 10),
    )


def test_a_host_that_waits_hides_no_communication_of_a_gpu() -> None:
    found = analyse(replay(gpu_step()))
    assert (found.span_us, found.compute_us, found.communication_us) == (45, 25, 20)
    # The product covers 5 of the 20 us; the host, which waits all the time, covers nothing.
    assert found.exposed_us == 15
    assert found.exposed_share == pytest.approx(15 / 45)
    assert (found.host_us, found.idle_us) == (5, 0)


def test_without_computations_of_a_gpu_operators_of_the_host_compute() -> None:
    """gloo's collectives have is_cpu_op false, too."""
    nodes = [comp(1, duration=30), collective(2, duration=40)]
    found = analyse(replay(trace(*nodes)))
    assert (found.compute_us, found.exposed_us, found.host_us) == (30, 10, 0)


def test_a_step_that_is_no_number_counts_as_none() -> None:
    one = comp(1)
    one.attr.append(AttributeProto(name="step", int32_list={"values": [3, 4]}))
    assert analyse(replay(trace(one, comp(2, step=5)))).steps == 1


@pytest.mark.parametrize("module", [chakra_pb2, plain])
def test_dangling_dependencies_can_be_dropped(module: Any) -> None:
    nodes = [module.Node(id=1, data_deps=[7, 2, 7], ctrl_deps=[9]), module.Node(id=2)]
    broken = trace(*nodes)
    assert drop_dangling(broken) == 3
    assert ([*nodes[0].data_deps], [*nodes[0].ctrl_deps]) == ([2], [])
    assert drop_dangling(broken) == 0
    assert replay(broken).played[0].because == 1


def test_gaps_of_the_host_are_kept_and_idle() -> None:
    nodes = [comp(1, duration=10, host_gap_us=3), comp(2, (1,), 5, host_gap_us=4)]
    found = analyse(replay(trace(*nodes)))
    assert (found.span_us, found.idle_us) == (22, 7)


def test_the_naive_rule_adds_waits_to_the_communication() -> None:
    nodes = [collective(1, duration=30), comp(2, (1,), 5, wait_us=28)]
    assert (replay(trace(*nodes)).span, naive_replay(trace(*nodes)).span) == (35, 63)
    assert analyse(replay(trace(*nodes))).waited_us == 28


def test_nothing_has_no_time() -> None:
    found = analyse(replay(trace()))
    assert (found.span_us, found.exposed_share, measured_span(trace())) == (0, 0, 0)
    assert replay(trace()).critical_path() == []


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([comp(1), comp(1)], "DuplicateId (rank 2, node 1)"),
        ([comp(1, (7,))], "DanglingDependency (rank 2, node 1): depends on node 7"),
        ([comp(1), comp(2, (3,)), comp(3, (2,))], "Cycle (rank 2, node 2): 2 nodes"),
    ],
)
def test_a_broken_trace_is_not_replayed(nodes: list[Node], text: str) -> None:
    with pytest.raises(InvalidTrace) as error:
        replay(trace(*nodes, rank=2))
    assert text in str(error.value)


RING = RingModel(latency_us=2, bytes_per_us=10, ranks=4, groups={"pair": 2, "one": 1})


@pytest.mark.parametrize(
    ("one", "model", "micros"),
    [
        (collective(1, duration=30), Scaled(0.5), 15),
        (collective(1, size=400), RING, 2 * 3 * 2 + 2 * 3 / 4 * 40),
        (collective(1, size=400, group="pair"), RING, 2 * 1 * 2 + 2 * 1 / 2 * 40),
        (collective(1, size=400, group="one"), RING, 0),
        (collective(1, Collective.REDUCE_SCATTER, 400), RING, 3 * 2 + 3 / 4 * 40),
        (collective(1, Collective.ALL_TO_ALL, 400), RING, 3 * 2 + 3 / 4 * 40),
        (collective(1, Collective.ALL_GATHER, 400), RING, 3 * (2 + 40)),
        (collective(1, Collective.BARRIER, 0), RING, 4),
        (collective(1, Collective.BROADCAST, 400), RING, 42),
        (send(1, 0, 1, size=400), RING, 42),
        (recv(1, 0, 1, size=400), RING, 42),
    ],
)
def test_models(one: Node, model: CommModel, micros: float) -> None:
    assert model(one) == pytest.approx(micros)
    # Computations keep their time.
    assert replay(trace(comp(7, duration=10), one), model).span == pytest.approx(max(10, micros))


def test_random_graphs_have_the_length_of_their_longest_path() -> None:
    chance = random.Random(7)
    for _ in range(cases(300)):
        count = chance.randint(1, 8)
        ids = chance.sample(range(100), count)
        durations = [chance.randint(0, 9) for _ in ids]
        needs = [[one for one in range(place) if chance.random() < 0.4] for place in range(count)]
        nodes = [
            comp(id, tuple(ids[one] for one in needed), micros)
            for id, needed, micros in zip(ids, needs, durations, strict=True)
        ]
        chance.shuffle(nodes)
        played = replay(trace(*nodes))
        ends: list[int] = []
        for place in range(count):
            ends.append(max((ends[one] for one in needs[place]), default=0) + durations[place])
        assert {one.node.id: one.end for one in played.played} == dict(zip(ids, ends, strict=True))
        assert sum(one.end - one.start for one in played.critical_path()) == played.span == max(ends)
