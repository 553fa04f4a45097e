"""Tests of serving pods' totals on their way through the agent."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from convoy_agents.pods.fields import MessageError
from convoy_agents.pods.messages import LauncherHello, RankHello, RankUpdate
from convoy_agents.pods.rank_events import parse_from_rank
from convoy_agents.pods.report import to_wire
from convoy_agents.pods.rules import LOADING_MS, reduce
from convoy_agents.pods.state import PodState, RankLoading, Urgency
from convoy_agents.traffic import totals
from convoy_agents.traffic.buffer import REPEAT_SECONDS, URGENT_SECONDS, TrafficBuffer
from convoy_agents.wire import hub_pb2

FRAME = {
    "type": "traffic",
    "queue": 2,
    "inFlight": 3,
    "requests": 10,
    "errors": 1,
    "refused": 4,
    "tokens": 80,
    "computeSeconds": 1.5,
    "cpuSeconds": 2.5,
    "latency": {"bounds": [0.1, 1.0], "counts": [7, 2, 1]},
    "firstToken": {"bounds": [0.1], "counts": [10, 0]},
}


def traffic(uid: str = "u", **fields: Any) -> hub_pb2.PodTraffic:
    return hub_pb2.PodTraffic(pod_uid=uid, **{"incarnation": 1, **fields})


def test_a_frame_becomes_the_message_for_the_hub() -> None:
    found = totals.parse(FRAME, "u", 3)
    assert (found.pod_uid, found.incarnation, found.queue, found.in_flight) == ("u", 3, 2, 3)
    assert (found.requests, found.errors, found.refused, found.tokens) == (10, 1, 4, 80)
    assert (found.compute_seconds, found.cpu_seconds) == (1.5, 2.5)
    assert list(found.latency.counts) == [7, 2, 1]
    assert list(found.first_token.bounds) == pytest.approx([0.1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"queue": -1}, "queue: -1 is not a whole number"),
        ({"requests": 2**60}, "requests: .* is not a whole number"),
        ({"cpuSeconds": -1.0}, "cpuSeconds: -1 is not a duration"),
        ({"cpuSeconds": "x"}, "cpuSeconds: 'x' is not a number"),
        ({"latency": 3}, "latency: not an object"),
        ({"latency": {"bounds": [0.1], "counts": [1]}}, "latency: 1 counts do not fit 1 bounds"),
        ({"latency": {"bounds": [0.1] * 65, "counts": [1] * 66}}, "latency: bounds and counts must be lists"),
        ({"latency": {"bounds": [1.0, 0.5], "counts": [1, 1, 1]}}, "latency: bounds must be ascending"),
        ({"firstToken": {"bounds": [0.0], "counts": [1, 1]}}, "firstToken: bounds must be ascending"),
        ({"latency": {"bounds": [0.1], "counts": [1, -1]}}, "count: -1 is not a whole number"),
    ],
)
def test_an_invalid_frame_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(MessageError, match=message):
        totals.parse({**FRAME, **changed}, "u", 1)


def test_the_buffer_sends_changes_at_once_and_repeats_the_rest() -> None:
    buffer = TrafficBuffer()
    buffer.add(traffic(requests=1, cpu_seconds=1.0))
    assert buffer.pop_message(100.0).pods[0].requests == 1  # type: ignore[union-attr]
    buffer.add(traffic(requests=1, cpu_seconds=2.0))
    assert buffer.pop_message(101.0) is None
    assert buffer.pop_message(100.0 + REPEAT_SECONDS) is not None
    buffer.add(traffic(requests=2))
    assert buffer.pop_message(100.1 + REPEAT_SECONDS) is not None


def test_a_silent_rank_is_not_repeated() -> None:
    buffer = TrafficBuffer()
    buffer.add(traffic(requests=1))
    assert buffer.pop_message(100.0) is not None
    assert buffer.pop_message(100.0 + 10 * REPEAT_SECONDS) is None


def test_a_removed_pod_is_dropped() -> None:
    buffer = TrafficBuffer()
    buffer.add(traffic("a"))
    buffer.add(traffic("b"))
    buffer.drop_pod("a")
    found = buffer.pop_message(0.0)
    assert found is not None and [one.pod_uid for one in found.pods] == ["b"]


def test_the_progress_of_a_load_reaches_the_report_every_few_seconds() -> None:
    pod = reduce(PodState("u"), LauncherHello(1, 5, "3.11")).state
    pod = replace(pod, launcher_incarnation=1)
    first = reduce(pod, RankLoading(1, 0, 10_000))
    assert first.urgency is Urgency.BATCHED
    again = reduce(first.state, RankLoading(1, 0, 10_000 + LOADING_MS - 1))
    assert again.state is first.state and again.urgency is Urgency.NONE
    later = reduce(again.state, RankLoading(1, 0, 10_000 + LOADING_MS))
    assert later.state.ranks[0].loading_ms == 10_000 + LOADING_MS
    running = reduce(later.state, RankUpdate(1, 0, "RUNNING"))
    assert running.state.ranks[0].loading_ms == 10_000 + LOADING_MS
    assert reduce(later.state, RankLoading(2, 0, 20_000)).problem


def test_frames_of_a_rank_become_events() -> None:
    hello = RankHello(1, 0)
    assert parse_from_rank({"type": "loading", "timeMs": 7}, hello) == RankLoading(1, 0, 7)
    assert parse_from_rank({"type": "unknown"}, hello) is None
    with pytest.raises(MessageError, match="timeMs"):
        parse_from_rank({"type": "loading"}, hello)


def test_the_report_has_the_time_of_the_load() -> None:
    pod = replace(PodState("u"), launcher_incarnation=0)
    state = reduce(pod, RankLoading(0, 0, 10_000)).state
    assert to_wire(state).ranks[0].loading_unix_ms == 10_000


def test_the_first_request_that_waits_is_noticed() -> None:
    seconds = itertools.count(0.0, URGENT_SECONDS)
    buffer = TrafficBuffer(lambda: next(seconds))
    queues = (0, 1, 2, 0, 3)
    assert [buffer.add(traffic(queue=queue)) for queue in queues] == [False, True, False, False, True]
    assert buffer.add(traffic("other", queue=1))


def test_a_program_cannot_make_its_requests_urgent_all_the_time() -> None:
    now = 100.0
    buffer = TrafficBuffer(lambda: now)
    flood = [buffer.add(traffic(queue=number % 2)) for number in range(100)]
    assert sum(flood) == 1 and flood[1]
    now += URGENT_SECONDS
    buffer.add(traffic(queue=0))
    assert buffer.add(traffic(queue=1))
