"""Tests of the counts of starts, ends and restarts of a pod's ranks."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_agents.pods import tally
from convoy_agents.pods.assignment import Assignment, Member
from convoy_agents.pods.messages import LauncherHello, RankUpdate
from convoy_agents.pods.rules import reduce
from convoy_agents.pods.state import Event, LauncherDisconnected, PodState


def plan(incarnation: int) -> Assignment:
    return Assignment(
        pod_uid="u",
        job_uid="j",
        job="ns/job",
        incarnation=incarnation,
        slot=0,
        rank_offset=0,
        processes=2,
        world_size=2,
        master_addr="10.0.0.1",
        master_port=29500,
        hang_seconds=60,
        role="worker",
        replica=0,
        command=("python3", "t.py"),
        members=(Member(0, "u", "n", "n:1", 2),),
    )


def rank(number: int, incarnation: int = 1, state: str = "RUNNING", **facts: Any) -> RankUpdate:
    return RankUpdate(incarnation, number, state, **facts)


class Pod:
    """A pod that the agent first saw at second 100. The clock advances by one second per event."""

    def __init__(self) -> None:
        self.state = PodState("u")
        self.order: tally.LaunchOrder | None = None
        self.now = 100.0
        self.starts: list[float] = []
        self.exits: list[str] = []
        self.in_place = 0

    def dispatch(self, *events: Event) -> Pod:
        for event in events:
            older, self.state = self.state, reduce(self.state, event).state
            before, self.order = (
                self.order,
                tally.latest_order(self.order, event, older, self.state, self.now),
            )
            if self.order is not before and self.order is not None:
                self.in_place += self.order.in_place
            self.starts += tally.start_seconds(self.order, older, self.state) if self.order else []
            self.exits += tally.exits(100.0, older, self.state)
            self.now += 1
        return self


HELLO = LauncherHello(0, 1, "3.11")


def test_start_times_of_a_fresh_pod_and_a_restart_in_place() -> None:
    pod = Pod().dispatch(HELLO, plan(1), rank(0, started_ms=101_500), rank(1, started_ms=101_250))
    assert (pod.starts, pod.in_place) == ([0.5, 0.25], 0)
    pod.dispatch(rank(0, started_ms=101_500), rank(0, state="EXITED", started_ms=101_500, ended_ms=107_000))
    assert (pod.starts, pod.exits) == ([0.5, 0.25], ["done"]), "each once"
    pod.dispatch(plan(2), rank(0, 2, started_ms=106_125))
    assert (pod.starts[2:], pod.in_place) == ([0.125], 1)
    pod.dispatch(plan(2))
    assert pod.in_place == 1, "told again, begun once"


def test_a_restart_in_place_counts_after_the_launcher_reconnects() -> None:
    pod = Pod().dispatch(HELLO, plan(1), LauncherDisconnected(), plan(2))
    assert pod.in_place == 0, "it has not heard of it"
    pod.dispatch(LauncherHello(1, 1, "3.11"), rank(0, 2, started_ms=104_250))
    assert (pod.starts, pod.in_place) == ([0.25], 1)


def test_a_restarted_agent_does_not_count_earlier_starts_and_exits() -> None:
    pod = Pod()
    pod.dispatch(LauncherHello(3, 1, "3.11"), rank(0, 3, started_ms=50_000))
    pod.dispatch(rank(1, 3, "EXITED", exit_code=1, started_ms=50_000, ended_ms=99_000))
    assert (pod.starts, pod.exits, pod.in_place) == ([], [], 0)
    pod.dispatch(rank(0, 3, "EXITED", exit_code=1, started_ms=50_000, ended_ms=101_000))
    assert pod.exits == ["failed"]


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, "done"),
        ({"exit_code": 1}, "failed"),
        ({"exit_code": 137, "signal": 9}, "killed"),
        ({"exit_code": 137, "signal": 9, "oom": True}, "out_of_memory"),
        ({"exit_code": 134, "signal": 6, "hung": True}, "hung"),
        ({"exit_code": 127, "command_not_found": True}, "command_not_found"),
    ],
)
def test_exits_are_counted_by_result(facts: dict[str, Any], kind: str) -> None:
    assert Pod().dispatch(HELLO, plan(1), rank(0, state="EXITED", **facts)).exits == [kind]
    assert kind in tally.EXITS
