"""Compares runs with closed forms, and with the figures of ASTRA-sim's own unit tests."""

from __future__ import annotations

import math

import pytest
from tests.unit.controllers.astrasim.simulations import MIB, Collective, messages

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.fabrics.dimension import DimensionFabric
from convoy_controllers.astrasim.network.links import AwareMedium
from convoy_controllers.astrasim.network.transport import Transport
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    Backend,
    CollectiveType,
    Dimension,
    Network,
    Topology,
)
from convoy_controllers.astrasim.result import Result
from convoy_controllers.astrasim.run import run


def finish(result: Result) -> int:
    """Return the time at which the last rank finishes."""
    assert result.findings == ()
    return max(one.finish for one in result.ranks if one is not None)


def arrival(network: Network, source: int, target: int) -> int:
    """Return the time at which a message of 1 MiB arrives that leaves at time 0."""
    clock = Clock()
    arrivals: list[int] = []
    transport = Transport(clock, network)
    transport.receive((0, source, target, MIB), lambda _: arrivals.append(clock.now), None)
    transport.send((0, source, target, MIB))
    clock.run(1000)
    (found,) = arrivals
    return found


@pytest.mark.parametrize(
    ("backend", "topology", "expected"),
    [
        (Backend.UNAWARE, Topology.RING, 21_031),
        (Backend.UNAWARE, Topology.FULLY_CONNECTED, 20_031),
        (Backend.UNAWARE, Topology.SWITCH, 20_531),
        (Backend.AWARE, Topology.RING, 60_093),
        (Backend.AWARE, Topology.FULLY_CONNECTED, 20_031),
        (Backend.AWARE, Topology.SWITCH, 40_062),
    ],
)
def test_one_message_has_the_time_of_upstream_s_tests(
    backend: Backend, topology: Topology, expected: int
) -> None:
    assert arrival(Network(backend, (Dimension(topology, 16, 50.0, 500.0),)), 1, 4) == expected


@pytest.mark.parametrize(("target", "expected"), [(1, 4_932), (2, 10_265), (16, 23_531)])
def test_a_message_uses_the_first_dimension_in_which_the_ranks_differ(target: int, expected: int) -> None:
    network = Network(
        Backend.UNAWARE,
        (
            Dimension(Topology.RING, 2, 200.0, 50.0),
            Dimension(Topology.FULLY_CONNECTED, 8, 100.0, 500.0),
            Dimension(Topology.SWITCH, 4, 50.0, 2000.0),
        ),
    )
    assert arrival(network, 0, target) == expected


def test_all_pairs_at_once_on_a_ring_have_the_time_of_upstream_s_tests() -> None:
    clock = Clock()
    fabric = DimensionFabric(Dimension(Topology.RING, 16, 50.0, 500.0))
    medium = AwareMedium(clock, fabric, lambda key: None)
    for source in range(16):
        for target in range(16):
            if source != target:
                medium.send((0, source, target, MIB))
    clock.run(1_000_000)
    assert clock.now == 704_116


@pytest.mark.parametrize("ranks", [2, 3, 8, 17])
@pytest.mark.parametrize("splits", [1, 4])
def test_a_ring_all_reduce_has_its_closed_form(ranks: int, splits: int) -> None:
    one = Collective(ranks=ranks, splits=splits)
    step, reduction = one.times(MIB // splits // ranks)
    expected = splits * (one.delay + 2 * (ranks - 1) * (step + one.delay) + (ranks - 1) * reduction)
    assert finish(run(one.simulation)) == finish(run(one.simulation, collapse=False)) == expected
    assert ranks != 8 or splits != 4 or expected == 117_780


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_a_direct_all_gather_has_its_closed_form(ranks: int) -> None:
    one = Collective(
        ranks=ranks,
        type=CollectiveType.ALL_GATHER,
        kind=AlgorithmKind.DIRECT,
        topology=Topology.FULLY_CONNECTED,
    )
    step, _ = one.times(MIB // 4)
    assert finish(run(one.simulation)) == 4 * (2 * one.delay + step)


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_halving_doubling_has_its_closed_form(ranks: int) -> None:
    one = Collective(
        ranks=ranks, kind=AlgorithmKind.HALVING_DOUBLING, topology=Topology.FULLY_CONNECTED, splits=1
    )
    sizes = [MIB >> (step + 1) for step in range(int(math.log2(ranks)))]
    expected = one.delay + 2 * sum(one.times(size)[0] + one.delay for size in sizes)
    # The first message of the second half leaves without a reduction, as in ASTRA-sim.
    expected += sum(one.times(size)[1] for size in sizes[1:])
    assert finish(run(one.simulation)) == expected


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_double_binary_tree_of_one_chunk_has_its_closed_form(ranks: int) -> None:
    one = Collective(
        ranks=ranks, kind=AlgorithmKind.DOUBLE_BINARY_TREE, topology=Topology.FULLY_CONNECTED, splits=1
    )
    step, reduction = one.times(MIB)
    depth = int(math.log2(ranks))
    up = one.delay + depth * (step + one.delay + reduction)
    down = (depth - 1) * (step + one.delay + reduction) + step + one.delay
    assert finish(run(one.simulation)) == up + down


@pytest.mark.parametrize("kind", [AlgorithmKind.RING, AlgorithmKind.HALVING_DOUBLING, AlgorithmKind.DIRECT])
def test_no_all_reduce_beats_the_bound_of_bandwidth(kind: AlgorithmKind) -> None:
    one = Collective(kind=kind, topology=Topology.FULLY_CONNECTED, latency=0.0, delay=1, memory=1e6)
    links = 7 if kind is AlgorithmKind.DIRECT else 1
    bound = 2 * 7 / 8 * MIB / (50 * 2**30 / 1e9) / links
    assert bound * 0.999 <= finish(run(one.simulation)) <= bound * 1.01 + 100


@pytest.mark.parametrize("flows", [1, 2, 7])
def test_flows_into_one_rank_share_its_link(flows: int) -> None:
    network = Network(Backend.AWARE, (Dimension(Topology.SWITCH, flows + 1, 50.0, 500.0),))
    result = run(messages(network, *((source, 0, MIB) for source in range(1, flows + 1))))
    serialization = MIB / (50 * 2**30 / 1e9)
    hop = int(500 + serialization)
    assert finish(result) == hop + (flows - 1) * int(serialization) + hop
