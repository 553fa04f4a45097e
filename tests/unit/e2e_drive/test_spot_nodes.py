"""Tests of nodes that follow a trace, with a fake provider and a fake clock."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.drive.spot_nodes import Act, follow, following, steps

from convoy_workloads.spot.trace import Change, Notices, SpotTrace, from_counts


class FakeProvider:
    def __init__(self, clock: FakeClock | None = None) -> None:
        self.acts: list[tuple[float, str, str]] = []
        self.clock = clock or FakeClock()

    def lose(self, node: str) -> None:
        self.acts.append((self.clock.now, "lose", node))

    def give(self, node: str) -> None:
        self.acts.append((self.clock.now, "give", node))

    def notice(self, node: str, deadline: float) -> None:
        self.acts.append((self.clock.now, f"notice of {deadline:g}", node))


class FakeClock:
    def __init__(self, end: float = float("inf")) -> None:
        self.now = 1000.0
        self.end = 1000.0 + end

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self.end


TRACE = SpotTrace(
    100.0,
    2,
    (
        Change(0.0, ("spot-0",), (), 0.0),
        Change(40.0, ("spot-1",), ("spot-0",), 30.0),
        Change(60.0, ("spot-0",), ("spot-1",), 0.0),
    ),
)
NODES = {"spot-0": "node-1", "spot-1": "node-2"}


def test_notices_come_before_their_losses_and_losses_before_returns() -> None:
    assert [(one.at, one.act) for one in steps(TRACE)] == [
        (0.0, Act.GIVE),
        (10.0, Act.NOTICE),
        (40.0, Act.LOSE),
        (40.0, Act.GIVE),
        (60.0, Act.LOSE),
        (60.0, Act.GIVE),
    ]


def test_nodes_follow_the_trace_and_losses_are_counted() -> None:
    clock = FakeClock()
    provider = FakeProvider(clock)
    *_, account = follow(TRACE, NODES, provider, clock.wait, clock)
    assert provider.acts == [
        (1000.0, "lose", "node-2"),
        (1010.0, "notice of 1040", "node-1"),
        (1040.0, "lose", "node-1"),
        (1040.0, "give", "node-2"),
        (1060.0, "lose", "node-2"),
        (1060.0, "give", "node-1"),
    ]
    assert account.counts == {Act.LOSE: 2, Act.GIVE: 2, Act.NOTICE: 1}
    assert (account.node_seconds, account.max_delay) == (100.0, 0.0)
    assert account.losses_per_node_hour == pytest.approx(72.0)


def test_the_block_can_end_before_the_trace() -> None:
    clock = FakeClock(end=50.0)
    *_, account = follow(TRACE, NODES, FakeProvider(clock), clock.wait, clock)
    assert account.counts[Act.LOSE] == 1
    assert account.node_seconds == 60.0


def test_every_node_is_returned_at_the_end() -> None:
    provider = FakeProvider()
    with following(from_counts([(0.0, 1), (3000.0, 0)], 6000.0, Notices(0.0)), ["n1", "n2"], provider):
        pass
    assert [one[1:] for one in provider.acts] == [("give", "n1"), ("give", "n2")]


def test_a_provider_that_fails_is_reported() -> None:
    class Broken(FakeProvider):
        def lose(self, node: str) -> None:
            raise RuntimeError(f"{node} does not stop")

    trace = SpotTrace(10.0, 1, ())
    with pytest.raises(AssertionError, match="n1 does not stop"), following(trace, ["n1"], Broken()):
        pass
    nothing: Any = FakeProvider()
    with pytest.raises(AssertionError, match="2 nodes, but only 1"), following(TRACE, ["n1"], nothing):
        raise RuntimeError("the block must not run")
