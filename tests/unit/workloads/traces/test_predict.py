"""Tests of the prediction of step times: replay of all ranks together, shared links, calibration, buckets."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.workloads.traces.build import collective, comp, recv, send, trace
from tests.unit.workloads.traces.test_recorded import conversion

from convoy_workloads.traces.attributes import set_attributes
from convoy_workloads.traces.findings import InvalidTrace
from convoy_workloads.traces.predict.buckets import with_buckets
from convoy_workloads.traces.predict.calibration import Calibration, calibrate
from convoy_workloads.traces.predict.fit_warnings import FitCode, fit_warnings
from convoy_workloads.traces.predict.job import Transfer, job_of
from convoy_workloads.traces.predict.links import Links, ends
from convoy_workloads.traces.predict.predict import (
    at_speed,
    predicted_change_us,
    predicted_step_us,
    recorded_step_us,
)
from convoy_workloads.traces.predict.sharing import Sharing
from convoy_workloads.traces.predict.together import replay_together
from convoy_workloads.traces.replay import replay
from convoy_workloads.traces.trace import Collective, Trace, is_communication, size_of
from convoy_workloads.traces.wire.chakra_pb2 import IOInfo, Node

SHARINGS = list(Sharing)


def timed(traces: list[Trace]) -> list[Trace]:
    """Write into each node the times of a replay with links of 1 byte a microsecond that nothing shares."""
    played = replay_together(job_of(traces, [0.0] * len(traces)), Links(0, 1, Sharing.NONE))
    for one, again in zip(traces, played.replays, strict=True):
        for node, each in zip(one.nodes, again.played, strict=True):
            node.start_time_micros, end = round(each.start), round(each.end)
            node.duration_micros = end - node.start_time_micros
    return traces


def step(rank: int, forward: int, sizes: tuple[int, ...], backward: int, number: int = 1) -> Trace:
    """Return a step: forward, and for each bucket a part of the backward pass and an all-reduce; an update
    that waits for all.
    """
    nodes, last = [comp(0, duration=forward, step=number)], 0
    for bucket, size in enumerate(sizes):
        nodes.append(comp(1 + bucket, (last,), backward, step=number))
        last = 1 + bucket
        nodes.append(collective(100 + bucket, deps=(last,), size=size, duration=0, step=number))
    waits = (last, *(100 + bucket for bucket in range(len(sizes))))
    return trace(*nodes, comp(99, waits, 5, step=number), rank=rank)


@st.composite
def jobs(draw: st.DrawFn) -> list[Trace]:
    sizes = tuple(draw(st.lists(st.integers(1, 500).map(lambda size: size * 2), min_size=1, max_size=5)))
    times = st.integers(0, 300)
    return timed([step(rank, draw(times), sizes, draw(times)) for rank in range(draw(st.integers(2, 4)))])


@given(jobs())
@settings(max_examples=40, deadline=None)
def test_recorded_times_come_back(traces: list[Trace]) -> None:
    job = job_of(traces, [0.0] * len(traces))
    begin = min(node.start_time_micros for one in traces for node in one.nodes)
    for one, played in zip(traces, replay_together(job).replays, strict=True):
        for node, each in zip(one.nodes, played.played, strict=True):
            assert each.start == pytest.approx(node.start_time_micros - begin, abs=1)
            assert each.end == pytest.approx(each.start + node.duration_micros, abs=1)


@given(jobs(), st.sampled_from(SHARINGS), st.floats(0.01, 10), st.floats(1, 20), st.floats(0, 50))
@settings(max_examples=60, deadline=None)
def test_a_slower_link_never_makes_a_data_parallel_step_shorter(
    traces: list[Trace], sharing: Sharing, rate: float, factor: float, latency: float
) -> None:
    job = job_of(traces, [0.0] * len(traces))
    fast = replay_together(job, Links(latency, rate * factor, sharing)).span
    slow = replay_together(job, Links(latency, rate, sharing)).span
    assert slow >= fast - 1e-6 * fast
    # No bytes in no time: what remains is the slowest rank's computation.
    free = replay_together(job, Links(0, 1e12, sharing)).span
    assert fast >= free - 1e-6


@given(jobs())
@settings(max_examples=40, deadline=None)
def test_equal_ranks_take_as_long_as_one_alone(traces: list[Trace]) -> None:
    one = traces[0]
    same = [Trace(one.nodes, rank=rank) for rank in range(2)]
    model = Links(3, 2, Sharing.NONE)
    span = replay_together(job_of(same), model).span
    alone = replay(one, lambda node: 2 * 3 + size_of(node) / 2)
    assert span == pytest.approx(alone.span)


def test_a_collective_starts_when_the_slowest_rank_has_arrived() -> None:
    traces = [step(0, 10, (100,), 0), step(1, 50, (100,), 0)]
    played = replay_together(job_of(traces), Links(1, 10, Sharing.FAIR))
    # The slow rank arrives at 50; two messages of 1 and 100 bytes at 10 a microsecond.
    assert [one.played[2].end for one in played.replays] == [62, 62]
    assert [one.played[2].start for one in played.replays] == [10, 50]
    assert played.step_times() == [67]


def transfer(size: float, *ranks: int, steps: float = 0) -> Transfer:
    return Transfer(tuple((rank, 0) for rank in ranks), steps, size, together=True)


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        # At 1 byte/us, 100 bytes start at 0 us and 50 at 40 us. The first then has 60 bytes left.
        (Sharing.FAIR, [150, 140]),
        (Sharing.FIFO, [100, 150]),
        (Sharing.NONE, [100, 90]),
    ],
)
def test_two_transfers_on_one_link(sharing: Sharing, expected: list[float]) -> None:
    one, two = transfer(100, 0, 1), transfer(50, 0, 1)
    found = ends([(0, one), (40, two)], Links(0, 1, sharing))
    assert [found[one], found[two]] == pytest.approx(expected)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_links_of_other_ranks_are_not_shared(sharing: Sharing) -> None:
    one, two = transfer(100, 0, 1), transfer(50, 2, 3)
    found = ends([(0, one), (0, two)], Links(0, 1, sharing))
    assert [found[one], found[two]] == pytest.approx([100, 50])


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500)), min_size=1, max_size=12),
    st.sampled_from([Sharing.FAIR, Sharing.FIFO]),
)
def test_a_busy_link_sends_all_its_bytes_at_its_rate(given: list[tuple[int, int]], sharing: Sharing) -> None:
    arrivals = [(float(time), transfer(size, 0, 1)) for time, size in given]
    found = ends(arrivals, Links(0, 2, sharing))
    free = 0.0
    for time, one in sorted(arrivals, key=lambda each: each[0]):
        free = max(free, time) + one.bytes / 2
        assert found[one] >= time + one.bytes / 2 - 1e-6
    assert max(found.values()) == pytest.approx(free)


def test_the_order_of_the_ranks_clocks_does_not_matter() -> None:
    traces = timed([step(0, 10, (40, 60), 20), step(1, 30, (40, 60), 25)])
    shifted = [
        traces[0],
        Trace([Node.FromString(node.SerializeToString()) for node in traces[1].nodes], rank=1),
    ]
    for node in shifted[1].nodes:
        node.start_time_micros += 1_000_000
    assert job_of(shifted).offsets == (0, -1_000_000)
    assert replay_together(job_of(shifted)).span == replay_together(job_of(traces)).span


def test_clocks_that_agree_are_kept_although_a_rank_ends_later() -> None:
    traces = timed([step(0, 10, (40, 60), 20), step(1, 30, (40, 60), 25), step(2, 30, (40, 60), 25)])
    for node in filter(is_communication, traces[1].nodes):
        node.duration_micros += 3
    assert job_of(traces).offsets == (0, 0, 0)
    # A clock that is fast by more than a collective lasts is set by the ends.
    for node in traces[2].nodes:
        node.start_time_micros += 500
    assert job_of(traces).offsets == (0, -3, -500)


def test_clocks_of_ranks_that_share_no_group_with_the_first() -> None:
    traces = [
        trace(collective(1, group="a", start=0), rank=0),
        trace(collective(1, group="a", start=700), collective(2, group="b", deps=(1,), start=900), rank=1),
        trace(collective(2, group="b", start=100), rank=2),
    ]
    for one in traces[:2]:
        set_attributes(one.metadata, process_groups='{"a": [0, 1], "b": [1, 2]}')
    assert job_of(traces).offsets == (0, -700, 100)


def test_a_message_begins_when_both_ends_are_there() -> None:
    traces = [
        trace(comp(1, duration=10), send(2, 0, 1, size=60, deps=(1,)), rank=0),
        trace(comp(1, duration=40), recv(2, 0, 1, size=60, deps=(1,)), comp(3, (2,), 5), rank=1),
    ]
    played = replay_together(job_of(traces), Links(2, 3))
    assert [one.played[1].end for one in played.replays] == [62, 62]
    assert played.span == 67


def test_ranks_that_disagree_are_not_replayed() -> None:
    with pytest.raises(InvalidTrace, match="CollectiveMismatch"):
        job_of([trace(collective(1), rank=0), trace(collective(1, Collective.BARRIER), rank=1)])
    crossed = [
        trace(collective(1, group="a"), collective(2, group="b", deps=(1,)), rank=0),
        trace(collective(2, group="b"), collective(1, group="a", deps=(2,)), rank=1),
    ]
    with pytest.raises(InvalidTrace, match="the ranks wait for each other"):
        replay_together(job_of(crossed), Links(1, 1))


def test_a_rank_without_a_trace_is_not_waited_for() -> None:
    one = step(0, 10, (100,), 0)
    set_attributes(one.metadata, world_size=4)
    played = replay_together(job_of([one]), Links(1, 10, Sharing.FAIR))
    # A ring of four: 6 messages, and 6/4 of the bytes.
    assert played.replays[0].played[2].end == 10 + 6 + 15


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("latency", [0.0, 40.0])
def test_calibration_finds_the_links_of_a_simulated_run(sharing: Sharing, latency: float) -> None:
    chance = random.Random(3)
    sizes = tuple(2 * chance.randint(10, 4000) for _ in range(20))
    traces = [step(rank, 100, sizes, 400 + rank) for rank in (0, 1)]
    true = Links(latency, 5.0, sharing)
    played = replay_together(job_of(traces), true)
    for one, again in zip(traces, played.replays, strict=True):
        for node, each in zip(one.nodes, again.played, strict=True):
            node.start_time_micros = round(each.start)
            node.duration_micros = round(each.end) - round(each.start)
    found = calibrate(job_of(traces), sharing)
    assert found is not None
    assert found.transfers == 20
    assert found.error < 0.03
    assert found.links.bytes_per_us == pytest.approx(5, rel=0.05)
    # A wrong assumption on sharing fits worse.
    others = [calibrate(job_of(traces), other) for other in SHARINGS if other is not sharing]
    assert all(other is not None and other.error > found.error for other in others)


def test_the_hosts_part_of_a_byte_stays_on_other_links() -> None:
    links = Links(
        3, 50, Sharing.FAIR
    )  # A byte takes 0.02 us; at the rate of 100, 0.01 of them are the link's.
    assert at_speed(links, 4) == Links(3, pytest.approx(200), Sharing.FAIR)
    assert at_speed(links, 1, 100).bytes_per_us == pytest.approx(50)
    assert 1 / at_speed(links, 0.5, 100).bytes_per_us == pytest.approx(0.03)
    assert 1 / at_speed(links, 1e9, 100).bytes_per_us == pytest.approx(0.01)
    # Links that seem faster than they are have no part of the hosts.
    assert at_speed(links, 2, 25).bytes_per_us == pytest.approx(100)


def test_the_step_is_predicted_from_the_traces() -> None:
    traces = timed([step(rank, 10, (100, 60), 20) for rank in (0, 1)])
    job = job_of(traces)
    # The link of 1 byte/us sends 160 bytes, of which 100 come 20 us before the rest.
    assert recorded_step_us(job) == 10 + 20 + 100 + 5
    assert predicted_step_us(job, Links(0, 1, Sharing.FIFO)) == 10 + 20 + 160 + 5
    assert predicted_step_us(job, Links(0, 2, Sharing.FIFO)) == 10 + 20 + 80 + 5


def test_nothing_to_calibrate() -> None:
    assert calibrate(job_of([trace(comp(1), rank=0), trace(comp(1), rank=1)])) is None


def backward(sizes: tuple[int, ...], buckets: tuple[int, ...]) -> Trace:
    """Return a step with gradients of `sizes` floats, and buckets of so many gradients. Two all-reduces can
    run at the same time, as in a group of gloo.
    """
    nodes: list[Node] = []
    last, ready, waits = (), 0, []
    for number, size in enumerate(sizes):
        node = comp(10 + number, last, 10, step=3)
        node.name = "torch::autograd::AccumulateGrad"
        node.inputs.CopyFrom(IOInfo(values="[]", shapes=f"[[{size}]]", types='["Tensor(float)"]'))
        nodes.append(node)
        last = (node.id,)
    for number, count in enumerate(buckets):
        size = 4 * sum(sizes[ready : ready + count])
        ready += count
        lane = () if number < 2 else (98 + number,)
        one = collective(100 + number, size=size, deps=(9 + ready, *lane), duration=0, step=3)
        one.name = "gloo:all_reduce"
        nodes.insert(nodes.index(next(node for node in nodes if node.id == 9 + ready)) + 1, one)
        waits.append(one.id)
    after = [comp(200 + number, (*last, one), 1, step=3) for number, one in enumerate(waits)]
    return timed([trace(*nodes, *after, rank=0), trace(*nodes, *after, rank=1)])[0]


def sizes_of(one: Trace) -> list[int]:
    return [size_of(node) for node in one.nodes if is_communication(node)]


@pytest.mark.parametrize("before", [(1, 1, 1, 1), (2, 2), (4,), (1, 3)])
@pytest.mark.parametrize(
    ("cap", "expected"),
    [(1, [400, 800, 1200, 1600]), (500, [1200, 1200, 1600]), (2400, [2400, 1600]), (10**9, [4000])],
)
def test_buckets_are_those_that_ddp_would_make(
    before: tuple[int, ...], cap: int, expected: list[int]
) -> None:
    gradients = (100, 200, 300, 400)
    changed = with_buckets(backward(gradients, before), cap)
    assert sizes_of(changed) == expected
    # The same replay as of a trace that was recorded with these buckets.
    counts, left = [], list(gradients)
    for size in expected:
        count, total = 0, 0
        while total < size:
            total, count = total + 4 * left.pop(0), count + 1
        counts.append(count)
    same = backward(gradients, tuple(counts))
    for sharing in SHARINGS:
        links = Links(2, 7, sharing)
        spans = [
            replay_together(job_of([one, Trace(one.nodes, rank=1)]), links).replays[0].played
            for one in (changed, same)
        ]
        ends_of = [{each.node.id: each.end for each in played if each.node.id < 100} for played in spans]
        assert ends_of[0] == ends_of[1]
        communications = [
            sorted(each.end for each in played if is_communication(each.node)) for played in spans
        ]
        assert communications[0] == pytest.approx(communications[1])


@pytest.mark.parametrize(("cap", "same"), [(4000, True), (10**9, True), (500, False)])
def test_the_recorded_buckets_change_nothing(cap: int, same: bool) -> None:
    one = backward((100, 200, 300, 400), (4,))
    assert (with_buckets(one, cap) is one) is same
    job, links = job_of([one, Trace(one.nodes, rank=1)]), Links(900, 0.01)
    assert (predicted_change_us(job, links, bucket_bytes=cap) == recorded_step_us(job)) is same
    assert predicted_change_us(job, links, 0.5, bucket_bytes=cap) > recorded_step_us(job)


@pytest.mark.parametrize(
    ("transfers", "sizes", "error", "modelled", "codes"),
    [
        (10, 2, 0.25, 125, []),
        (10, 2, 0.26, 100, [FitCode.FIT_ERROR]),
        (10, 2, 0, 126, [FitCode.STEP_ERROR]),
        (10, 2, 0, 74, [FitCode.STEP_ERROR]),
        (9, 2, 0, 100, [FitCode.FEW_COMMUNICATIONS]),
        (10, 1, 0, 100, [FitCode.ONE_SIZE]),
    ],
)
def test_warnings_of_a_fit(
    transfers: int, sizes: int, error: float, modelled: float, codes: list[FitCode]
) -> None:
    calibration = Calibration(Links(1, 1), transfers, sizes, error)
    assert [one.code for one in fit_warnings(calibration, 100, modelled)] == codes


def test_buckets_of_a_recorded_training() -> None:
    traces = [conversion("ddp", rank).trace for rank in (0, 1)]
    job = job_of(traces)
    changed = [with_buckets(one, 10**9) for one in traces]
    gradients = [size for size in sizes_of(changed[0]) if size > 12]
    assert gradients == [(16 * 32 + 32 + 32 * 32 + 32 + 32 * 4 + 4) * 4] * 2
    again = job_of(changed, job.offsets)
    assert replay_together(again, Links(10, 100)).span > 0


def test_a_recorded_training_comes_back() -> None:
    traces = [conversion("ddp", rank).trace for rank in (0, 1)]
    job = job_of(traces)
    assert len(replay_together(job).step_times()) == 2
    begin = min(map(job.first_start, (0, 1)))
    for number, played in enumerate(replay_together(job).replays):
        wrong = [
            abs(one.start - (one.node.start_time_micros + job.offsets[number] - begin))
            for one in played.played
        ]
        assert max(wrong) <= 1


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([comp(1, step=1), collective(2, size=8, step=1)], "no step shows gradients"),
        ([comp(1)], "no step shows gradients"),
    ],
)
def test_a_trace_without_gradients_has_no_other_buckets(nodes: list[Node], text: str) -> None:
    with pytest.raises(InvalidTrace, match=text):
        with_buckets(trace(*nodes, rank=0), 100)


def test_gradients_that_no_group_reduces() -> None:
    one = backward((100, 200), (2,))
    one.nodes[:] = [node for node in one.nodes if not is_communication(node)]
    with pytest.raises(InvalidTrace, match="no group reduces the gradients of step 3"):
        with_buckets(one, 100)
    with pytest.raises(ValueError, match="cap_bytes: must be at least 1, not 0"):
        with_buckets(one, 0)
