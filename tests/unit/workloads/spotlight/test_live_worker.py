"""Workers pull, commit and deliver. They may be killed at any message; every request still ends once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_workloads.engines.spotlight.live.lease_service import LeaseService
from convoy_workloads.engines.spotlight.live.messages import Message, NoAnswer, Pull
from convoy_workloads.engines.spotlight.live.worker import Worker
from convoy_workloads.spot.ledger.request import Commit, Request, RequestKind, Result
from convoy_workloads.spot.ledger.requests import RequestLedger

STEPS = 4


class Sums:
    """Work whose result shows which steps were computed: the state is the list of their numbers."""

    steps = STEPS

    def load(self, request: Request, commit: Commit | None) -> list[int]:
        return [request.seed] if commit is None else list(commit.state["steps"])

    def step(self, state: list[int]) -> int:
        return len(state) - 1

    def advance(self, version: int, states: Sequence[list[int]], until: int) -> list[list[int]]:
        return [[*one, *range(len(one), until + 1)] for one in states]

    def commit(self, version: int, state: list[int]) -> Commit:
        return Commit(version, self.step(state), {"steps": state})

    def result(self, state: list[int]) -> Result:
        return Result(0, {"steps": state})


class Killed(Exception):
    pass


@dataclass
class Line:
    """A connection that fails as `faults` says: before the message, after it, or with the worker's death."""

    service: LeaseService
    name: str
    faults: list[str]
    sent: list[Message] = field(default_factory=list)

    def call(self, message: Message, seconds: float) -> Any:
        fault = self.faults.pop() if self.faults else "none"
        if fault == "lost":
            raise NoAnswer
        if fault == "killed before":
            raise Killed
        self.sent.append(message)
        answer = self.service.handle(self.name, message)
        if fault == "killed after":
            raise Killed
        if fault == "unanswered":
            raise NoAnswer
        return answer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def requests(count: int) -> list[Request]:
    return [Request("job", 0, 0, seed, RequestKind.ROLLOUT, 0) for seed in range(count)]


def idle(worker: Worker) -> None:
    worker.stop()


def build(line: Line, **options: Any) -> Worker:
    worker: Worker
    worker = Worker(line, Sums(), capacity=3, pause=lambda: idle(worker), **options)
    return worker


FAULTS = ("none", "none", "none", "lost", "unanswered", "killed before", "killed after")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_request_is_done_once_whatever_is_lost(seed: int) -> None:
    chance, clock = random.Random(seed), Clock()
    ledger = RequestLedger(lease_seconds=10.0)
    service = LeaseService(ledger, clock)
    wanted = requests(7)
    ledger.plan(wanted)
    for number in range(200):
        if len(ledger.select(list(ledger_done()))) == len(wanted):
            break
        faults = [chance.choice(FAULTS) for _ in range(4)] if number < 60 else []
        try:
            build(Line(service, f"worker {number}", faults)).run()
        except Killed:
            if chance.random() < 0.5:
                service.remove(f"worker {number}")
        clock.now += chance.choice((0.0, 11.0))
    results = ledger.consume([one.id for one in wanted], 0)
    assert sorted(one.seed for one, _ in results) == list(range(7))
    assert all(result.payload["steps"] == [one.seed, 1, 2, 3, 4] for one, result in results)
    counts = ledger.counts()
    assert counts["planned"] == counts["consumed"] == 7 and counts["open"] == 0


def ledger_done() -> Any:
    from convoy_workloads.spot.ledger.request import RequestState

    return (RequestState.DONE,)


def test_a_killed_workers_last_commit_is_resumed_by_another() -> None:
    ledger, clock = RequestLedger(lease_seconds=10.0), Clock()
    service = LeaseService(ledger, clock)
    ledger.plan(requests(1))
    with pytest.raises(Killed):  # The faults are taken from the end: pull, commit 1, commit 2, then death.
        build(Line(service, "first", ["killed before", "none", "none", "none"])).run()
    assert not service.handle("second", Pull(1)), "the lease of the dead worker still runs"
    clock.now = 11.0
    (lease,) = service.handle("second", Pull(1))
    assert lease.commit.step == 2


def test_a_noticed_worker_surrenders_what_it_holds_and_another_goes_on_at_once() -> None:
    ledger, clock = RequestLedger(lease_seconds=10.0), Clock()
    service = LeaseService(ledger, clock)
    ledger.plan(requests(2))
    looks = iter([False, False, False, True])
    build(Line(service, "first", []), noticed=lambda: next(looks, True)).run()
    leases = service.handle("second", Pull(2))
    assert [lease.commit.step for lease in leases] == [2, 2] and ledger.counts()["surrendered"] == 2


def test_a_draining_worker_gets_no_lease_and_a_superseded_request_is_dropped() -> None:
    ledger, clock = RequestLedger(lease_seconds=10.0), Clock()
    service = LeaseService(ledger, clock)
    (only,) = requests(1)
    ledger.plan([only])
    service.pause("first")
    assert service.handle("first", Pull(1)) == []
    line = Line(service, "second", [])
    worker = build(line)
    service_handle = service.handle

    def supersede(name: str, message: Message) -> Any:
        answer = service_handle(name, message)
        if isinstance(message, Pull):
            ledger.supersede([only.id])
        return answer

    service.handle = supersede  # type: ignore[method-assign]
    worker.run()
    assert worker.counts["steps"] == 1 and worker.counts["results"] == 0


def test_leases_of_one_pull_have_one_version_of_the_weights() -> None:
    ledger, clock = RequestLedger(lease_seconds=10.0), Clock()
    service = LeaseService(ledger, clock)
    kind = RequestKind.ROLLOUT
    ledger.plan([Request("job", 0, 0, 0, kind, 1), Request("job", 0, 0, 1, kind, 2)])
    assert [one.request.version for one in service.handle("one", Pull(5))] == [1]
    assert [one.request.version for one in service.handle("two", Pull(5))] == [2]
