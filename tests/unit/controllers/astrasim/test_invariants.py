"""Properties that every run has, tried on random simulations."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.controllers.astrasim.simulations import Collective

from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    Backend,
    CollectiveNode,
    CollectiveType,
    ComputeNode,
    MessageNode,
    Node,
    Options,
    Simulation,
    Topology,
    Workload,
)
from convoy_controllers.astrasim.result import Result
from convoy_controllers.astrasim.run import run
from convoy_controllers.astrasim.symmetry import is_symmetric

TYPES = [one for one in CollectiveType if one is not CollectiveType.BROADCAST]
SIZES = st.integers(1, 1 << 24)
quick = settings(max_examples=cases(20), deadline=None)


@st.composite
def collectives(draw: st.DrawFn, most_ranks: int = 9) -> Collective:
    """Return a random ring or direct collective."""
    return Collective(
        ranks=draw(st.integers(3, most_ranks)),
        type=draw(st.sampled_from(TYPES)),
        size=draw(SIZES),
        kind=draw(st.sampled_from([AlgorithmKind.RING, AlgorithmKind.DIRECT])),
        window=draw(st.none() | st.integers(1, 4)),
        topology=draw(st.sampled_from(Topology)),
        bandwidth=draw(st.sampled_from([1.0, 12.5, 50.0, 400.0])),
        latency=draw(st.sampled_from([0.0, 100.0, 936.25])),
        splits=draw(st.integers(1, 3)),
        active=draw(st.integers(1, 3)),
        delay=draw(st.sampled_from([1, 10, 500])),
        memory=draw(st.sampled_from([25.0, 3350.0])),
        queues=draw(st.sampled_from([1, 1, 2])),
    )


def finish(result: Result) -> int:
    """Return the time at which the last rank finishes."""
    assert result.findings == ()
    return max(one.finish for one in result.ranks if one is not None)


def chunks(one: Collective) -> list[int]:
    """Return the sizes of a collective's chunks."""
    chunk = one.size // one.splits
    if one.type is not CollectiveType.ALL_GATHER and chunk < one.ranks:
        return [one.ranks] * one.splits
    return [chunk] * -(-one.size // chunk)


@quick
@given(collectives())
def test_more_bandwidth_is_never_slower(one: Collective) -> None:
    assume(one.type is not CollectiveType.ALL_GATHER or one.size >= one.splits)
    faster = replace(one, bandwidth=one.bandwidth * 2)
    assert finish(run(faster.simulation)) <= finish(run(one.simulation))


@quick
@given(collectives())
def test_one_hop_without_shared_links_is_the_same_with_and_without_congestion(one: Collective) -> None:
    assume(one.type is not CollectiveType.ALL_GATHER or one.size >= one.splits)
    # One chunk at a time: two chunks would share the links.
    one = replace(one, topology=Topology.FULLY_CONNECTED, active=1, queues=1)
    aware = replace(one, backend=Backend.AWARE)
    assert run(aware.simulation).ranks == run(one.simulation).ranks


@quick
@given(collectives(most_ranks=12), st.sampled_from(Backend))
def test_one_rank_for_all_gives_the_figures_of_all(one: Collective, backend: Backend) -> None:
    assume(one.type is not CollectiveType.ALL_GATHER or one.size >= one.splits)
    simulation = replace(one, backend=backend).simulation
    assume(is_symmetric(simulation))
    every, alone = run(simulation, collapse=False), run(simulation)
    assert alone.collapsed and alone.ranks == every.ranks
    assert (alone.messages, alone.message_bytes) == (every.messages, every.message_bytes)


def test_one_rank_for_all_gives_the_figures_of_64_ranks() -> None:
    for backend in Backend:
        simulation = Collective(ranks=64, splits=2, active=2, backend=backend).simulation
        assert run(simulation).ranks == run(simulation, collapse=False).ranks


@quick
@given(collectives(), st.sampled_from(Backend))
def test_the_bytes_that_arrive_are_those_of_the_algorithm(one: Collective, backend: Backend) -> None:
    assume(one.type is not CollectiveType.ALL_GATHER or one.size >= one.splits)
    halves = 2 if one.type is CollectiveType.ALL_REDUCE else 1
    sends = halves * (one.ranks - 1)
    if one.type is CollectiveType.ALL_TO_ALL and one.kind is AlgorithmKind.RING:
        sends = one.ranks * (one.ranks - 1) // 2
    parts = 1 if one.type is CollectiveType.ALL_GATHER else one.ranks
    expected = sum(one.ranks * sends * (chunk // parts) for chunk in chunks(one))
    assert run(replace(one, backend=backend).simulation, collapse=False).message_bytes == expected


@st.composite
def workloads(draw: st.DrawFn) -> Simulation:
    """Return a random simulation whose nodes, matches and dependencies may be wrong."""
    ranks = draw(st.integers(3, 5))
    base = Collective(ranks=ranks, splits=2, topology=Topology.SWITCH).simulation
    ids = st.integers(0, 6)

    def node(number: int) -> Node:
        deps = tuple(draw(st.lists(ids, max_size=2))) if number else ()
        match draw(st.sampled_from(["comp", "coll", "send", "recv"])):
            case "comp":
                return ComputeNode(number, deps, draw(st.integers(0, 50)), draw(st.booleans()))
            case "coll":
                return CollectiveNode(
                    number, CollectiveType.ALL_REDUCE, draw(st.sampled_from([64, 4096])), deps
                )
            case kind:
                peer = draw(st.integers(0, ranks))
                return MessageNode(number, kind == "send", peer, draw(st.sampled_from([0, 64])), 0, deps)

    lists = [tuple(node(number) for number in range(draw(st.integers(0, 6)))) for _ in range(ranks)]
    options = Options(rendezvous=draw(st.booleans()))
    return replace(base, workload=Workload(tuple(lists)), options=options)


@quick
@given(workloads())
def test_every_run_ends_with_figures_or_findings(simulation: Simulation) -> None:
    result = run(simulation)
    assert result.finished or result.findings
    assert result == run(simulation)
    for figures in result.ranks:
        assert figures is None or all(0 <= start <= end for start, end in figures.nodes.values())


def test_a_run_ends_when_its_events_are_spent() -> None:
    simulation = Collective().simulation
    needed = run(simulation, collapse=False).events
    assert run(simulation, events=needed, collapse=False).finished
    short = run(simulation, events=needed - 1, collapse=False)
    assert [one.kind for one in short.findings] == ["Budget"] and not short.finished
