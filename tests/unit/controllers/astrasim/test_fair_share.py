"""The fair-share network against closed forms, an exact allocation and an independent simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controllers.astrasim.simulations import MIB, Collective, messages
from tests.unit.controllers.astrasim.test_invariants import quick

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.delays import bytes_per_ns
from convoy_controllers.astrasim.network.fabrics.fabric import Link
from convoy_controllers.astrasim.network.fabrics.fat_tree import FatTree
from convoy_controllers.astrasim.network.fabrics.graph import LinkGraph
from convoy_controllers.astrasim.network.fair_share import FairShareMedium, _Flow, _split
from convoy_controllers.astrasim.network.max_min import max_min
from convoy_controllers.astrasim.network.medium import Key
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    Backend,
    Dimension,
    GraphNetwork,
    Network,
    Topology,
)
from convoy_controllers.astrasim.run import run

SERIALIZATION = MIB / bytes_per_ns(50.0)
Problem = tuple[list[int], list[list[int]]]
"""Capacities of links, and the links of each flow."""


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Return random links and flows."""
    capacities = draw(st.lists(st.integers(1, 50), min_size=1, max_size=6))
    links = st.integers(0, len(capacities) - 1)
    return capacities, draw(st.lists(st.lists(links, min_size=1, unique=True), max_size=8))


def exact(capacities: Sequence[int], paths: Sequence[Sequence[int]]) -> list[Fraction]:
    """Return the max-min fair rates by progressive filling with exact numbers, one step at a time."""
    rates = [Fraction(0)] * len(paths)
    growing = set(range(len(paths)))
    while growing:
        free = [
            capacity - sum(rates[flow] for flow, path in enumerate(paths) if link in path)
            for link, capacity in enumerate(capacities)
        ]
        counts = [sum(link in paths[flow] for flow in growing) for link in range(len(capacities))]
        step = min(room / count for room, count in zip(free, counts, strict=True) if count)
        for flow in growing:
            rates[flow] += step
        full = {link for link, room in enumerate(free) if counts[link] and room == step * counts[link]}
        growing -= {flow for flow in growing if full & set(paths[flow])}
    return rates


@quick
@given(problems())
def test_the_rates_are_those_of_exact_progressive_filling(problem: Problem) -> None:
    capacities, paths = problem
    rates, shares = max_min([float(one) for one in capacities], paths)
    expected = [float(rate) for rate in exact(capacities, paths)]
    assert rates == pytest.approx(expected, rel=1e-9) and shares == pytest.approx(expected, rel=1e-9)


@quick
@given(problems())
def test_each_flow_has_a_full_link_on_which_no_flow_is_faster(problem: Problem) -> None:
    capacities, paths = problem
    rates, _ = max_min([float(one) for one in capacities], paths)
    used = [
        sum(rate for rate, path in zip(rates, paths, strict=True) if link in path)
        for link in range(len(capacities))
    ]
    assert all(one <= capacity * (1 + 1e-9) for one, capacity in zip(used, capacities, strict=True))
    for rate, path in zip(rates, paths, strict=True):
        assert any(
            used[link] >= capacities[link] * (1 - 1e-9)
            and rate
            >= max(other for other, path in zip(rates, paths, strict=True) if link in path) * (1 - 1e-9)
            for link in path
        )


def arrivals(graph: LinkGraph, sent: Sequence[tuple[int, int, int, int]]) -> list[int]:
    """Return the arrival of each message: (time of sending, source, target, size)."""
    clock = Clock()
    found = [-1] * len(sent)

    def deliver(key: Key) -> None:
        found[key[0]] = clock.now

    medium = FairShareMedium(clock, graph, deliver)
    for number, (time, *key) in enumerate(sent):
        clock.at(time, medium.send, (number, *key))
    clock.run(10_000)
    assert all(not pipe.flows for pipe in medium._table._carriers.values())
    return found


def line(*bandwidths: float, latency: float = 500.0) -> LinkGraph:
    """Return ranks in a line, with a link in each direction between neighbours."""
    links = [
        Link(*pair, bandwidth, latency)
        for start, bandwidth in enumerate(bandwidths)
        for pair in ((start, start + 1), (start + 1, start))
    ]
    return LinkGraph(len(bandwidths) + 1, [], links)


@pytest.mark.parametrize("flows", [1, 2, 3, 7, 100])
def test_n_flows_on_a_link_take_n_times_the_serialization(flows: int) -> None:
    found = arrivals(line(50.0), [(1, 0, 1, MIB)] * flows)
    assert set(found) == {1 + int(500 + flows * SERIALIZATION)}


def test_flows_on_different_links_do_not_share() -> None:
    found = arrivals(line(50.0, 50.0, 25.0), [(1, 0, 1, MIB), (1, 1, 0, MIB), (1, 1, 2, MIB), (1, 2, 3, MIB)])
    once = 1 + int(500 + SERIALIZATION)
    assert found == [once, once, once, 1 + int(500 + 2 * SERIALIZATION)]


def test_a_route_has_the_latencies_of_all_links_and_the_lowest_bandwidth() -> None:
    assert arrivals(line(50.0, 10.0, 25.0), [(1, 0, 3, MIB)]) == [1 + int(1500 + 5 * SERIALIZATION)]


def test_a_flow_speeds_up_when_another_one_ends() -> None:
    # Both share until the short one has sent its half: 1 unit of time. The long one then has half left.
    short, long = arrivals(line(50.0), [(1, 0, 1, MIB // 2), (1, 0, 1, MIB)])
    assert short == 1 + int(500 + SERIALIZATION)
    assert abs(long - (1 + 500 + 1.5 * SERIALIZATION)) <= 1


def test_a_flow_slows_down_when_another_one_starts() -> None:
    half = int(SERIALIZATION / 2)
    first, second = arrivals(line(50.0), [(1, 0, 1, MIB), (1 + half, 0, 1, MIB)])
    assert abs(first - (1 + 500 + 1.5 * SERIALIZATION)) <= 1
    assert abs(second - (1 + 500 + 2 * SERIALIZATION)) <= 1


def test_the_rest_of_a_bottleneck_goes_to_others() -> None:
    # Three flows share link 0 -> 1 of 50 GB/s. One of them gets only 10 GB/s beyond it, so two get 20 each.
    found = arrivals(line(50.0, 10.0), [(1, 0, 2, MIB), (1, 0, 1, MIB), (1, 0, 1, MIB)])
    assert found[1] == found[2] and abs(found[1] - (1 + 500 + 2.5 * SERIALIZATION)) <= 1
    assert abs(found[0] - (1 + 1000 + 5 * SERIALIZATION)) <= 1


@st.composite
def traffic(draw: st.DrawFn) -> tuple[LinkGraph, list[tuple[int, int, int, int]]]:
    """Return a random connected graph, and messages on it."""
    ranks = draw(st.integers(2, 6))
    bandwidths = st.sampled_from([1.0, 2.5, 10.0])
    pairs = {(rank, (rank + 1) % ranks): draw(bandwidths) for rank in range(ranks)}
    for pair in draw(st.lists(st.tuples(*[st.integers(0, ranks - 1)] * 2), max_size=6)):
        if pair[0] != pair[1]:
            pairs.setdefault(pair, draw(bandwidths))
    graph = LinkGraph(ranks, [], [Link(*pair, rate, 100.0) for pair, rate in pairs.items()])
    sent = []
    for _ in range(draw(st.integers(1, 8))):
        source = draw(st.integers(0, ranks - 1))
        target = (source + draw(st.integers(1, ranks - 1))) % ranks
        sent.append((draw(st.integers(1, 5000)), source, target, draw(st.integers(1, 10_000))))
    return graph, sent


def simulated(graph: LinkGraph, sent: Sequence[tuple[int, int, int, int]]) -> list[float]:
    """Return the arrivals without rounding, with all rates computed again at each start and end."""
    routes = [graph.route(source, target) for _, source, target, _ in sent]
    links = sorted({link for route in routes for link in route})
    paths = [[links.index(link) for link in route] for route in routes]
    left = [float(size) for *_, size in sent]
    found = [0.0] * len(sent)
    active: list[int] = []
    later = sorted(range(len(sent)), key=lambda flow: sent[flow][0])
    now = 0.0
    while active or later:
        # Exact allocation takes whole capacities: tenths of GB/s.
        tenths = exact([round(link.bandwidth * 10) for link in links], [paths[flow] for flow in active])
        rates = [bytes_per_ns(float(rate) / 10) for rate in tenths]
        ends = [now + left[flow] / rate for flow, rate in zip(active, rates, strict=True)]
        start = sent[later[0]][0] if later else float("inf")
        time = min([start, *ends])
        for flow, rate in zip(active, rates, strict=True):
            left[flow] -= rate * (time - now)
        now = time
        for flow, end in zip(list(active), ends, strict=True):
            if end <= now:
                active.remove(flow)
                found[flow] = now + sum(link.latency for link in routes[flow])
        while later and sent[later[0]][0] <= now:
            active.append(later.pop(0))
    return found


@quick
@given(traffic())
def test_messages_arrive_when_an_independent_simulation_says(
    drawn: tuple[LinkGraph, list[tuple[int, int, int, int]]],
) -> None:
    graph, sent = drawn
    # A message leaves up to 1 ns early, so the messages that share its links gain up to that.
    for found, expected in zip(arrivals(graph, sent), simulated(graph, sent), strict=True):
        assert abs(found - expected) <= 1 + 3 * len(sent)


class Compared(FairShareMedium):
    """Compares each allocation with one of all messages at once. Both must be the same to the last bit."""

    def _allocate(self) -> None:
        pipes = list(self._changed)
        super()._allocate()
        flows = dict.fromkeys(flow for pipe in pipes for flow in pipe.flows)
        reached = list(flows)
        for flow in reached:
            new = [one for pipe in flow.route for one in pipe.flows if one not in flows]
            flows |= dict.fromkeys(new)
            reached += dict.fromkeys(new)
        used = dict.fromkeys(pipe for flow in reached for pipe in flow.route)
        places = {pipe: place for place, pipe in enumerate(used)}
        paths = [[places[pipe] for pipe in flow.route] for flow in reached]
        rates, _ = max_min([pipe.capacity for pipe in used], paths)
        assert [flow.rate for flow in reached] == rates


@pytest.mark.parametrize("bandwidth", [1.0, 3.0, 50.0])
@pytest.mark.parametrize("seed", range(3))
def test_an_allocation_of_the_changes_is_one_of_all_messages_to_the_last_bit(
    bandwidth: float, seed: int
) -> None:
    # On equal links, many shares differ by their rounding only.
    random = Random(seed)
    clock = Clock()
    arrived: list[Key] = []
    medium = Compared(clock, FatTree(4, bandwidth, 100.0), arrived.append)
    for number in range(60):
        source, distance = random.randrange(16), random.randrange(1, 16)
        key = (number, source, (source + distance) % 16, random.choice([96, 256, 1000]))
        clock.at(random.randint(1, 60), medium.send, key)
    clock.run(1_000_000)
    assert len(arrived) == 60


def test_shares_that_differ_by_rounding_become_one_rate_when_their_links_meet() -> None:
    flows = [_Flow((number, 0, 1, 1), ()) for number in range(3)]
    for flow, rate in zip(flows, (0.5, 1.0, math.nextafter(1.0, 2.0)), strict=True):
        flow.rate = flow.share = rate
    again, floor = _split(flows, 3.0)
    assert again == flows[1:] and 0.5 < floor < 1
    flows[2].rate = 1.0
    assert _split(flows, 3.0) == ([], 3.0)


@pytest.mark.parametrize("flows", [2, 5])
def test_an_incast_through_a_switch_shares_the_last_link(flows: int) -> None:
    network = Network(Backend.FAIR_SHARE, (Dimension(Topology.SWITCH, flows + 1, 50.0, 500.0),))
    result = run(messages(network, *((source, 0, MIB) for source in range(1, flows + 1))))
    assert result.ranks[0] is not None
    assert result.ranks[0].finish == int(1000 + flows * SERIALIZATION)
    assert result.links[0].name == "switch -> 0" and result.links[0].bytes == flows * MIB
    assert result.links[0].utilisation == pytest.approx(1 - 1000 / result.ranks[0].finish, rel=1e-4)


def test_chunks_at_once_take_the_same_link_share_by_share() -> None:
    one = Collective(topology=Topology.FULLY_CONNECTED, backend=Backend.FAIR_SHARE, splits=2, active=2)
    alone = replace(one, splits=1, active=1, size=MIB)
    # Two chunks of half the size at half the rate take as long as one whole chunk, without its reductions.
    both, single = run(one.simulation).ranks[0], run(alone.simulation).ranks[0]
    assert both is not None and single is not None
    step, reduction = alone.times(MIB // 8)
    assert single.finish == 10 + 14 * (step + 10) + 7 * reduction
    _, half = alone.times(MIB // 16)
    assert abs(both.finish - (10 + 14 * (step + 10) + 7 * half)) <= 14


def test_without_shared_links_the_figures_are_those_without_congestion() -> None:
    # The double binary tree is left out, because there a chunk on its way up may share a link with the
    # previous chunk on its way down.
    for kind in (AlgorithmKind.RING, AlgorithmKind.DIRECT, AlgorithmKind.HALVING_DOUBLING):
        one = Collective(topology=Topology.FULLY_CONNECTED, kind=kind)
        assert (
            run(replace(one, backend=Backend.FAIR_SHARE).simulation).ranks
            == run(one.simulation, collapse=False).ranks
        )


def test_work_on_rates_counts_as_events() -> None:
    graph = line(50.0)
    simulation = messages(GraphNetwork(Backend.FAIR_SHARE, graph, (2,)), *[(0, 1, MIB)] * 5)
    needed = run(simulation).events
    assert run(simulation, events=needed).finished
    assert [one.kind for one in run(simulation, events=needed - 1).findings] == ["Budget"]
