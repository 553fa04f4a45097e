"""Tests of the ledger of requests: each request ends once, under kills, repeats, late results and crashes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_workloads.spot.ledger.request import (
    Commit,
    InvalidRequest,
    Lease,
    Request,
    RequestKind,
    RequestState,
    Result,
)
from convoy_workloads.spot.ledger.requests import RequestLedger

ROLLOUT, EXPLORE = RequestKind
LEASE = 30.0


def request(seed: int = 0, iteration: int = 0, kind: RequestKind = ROLLOUT, version: int = 0) -> Request:
    return Request("job", iteration, 0, seed, kind, version)


def ledger(*requests: Request) -> RequestLedger:
    found = RequestLedger(LEASE)
    found.plan(requests)
    return found


def leased(book: RequestLedger, worker: str = "a", now: float = 0.0) -> Lease:
    lease = book.lease(worker, now)
    assert lease is not None
    return lease


def test_the_identity_has_all_parts_but_the_version() -> None:
    same = request(version=3)
    others = [request(1), request(iteration=1), request(kind=EXPLORE), Request("b", 0, 0, 0, ROLLOUT, 0)]
    assert request().id == same.id
    assert len({one.id for one in (request(), *others)}) == 5


def test_a_lease_times_out_and_another_worker_resumes_from_the_last_commit() -> None:
    book = ledger(request())
    lease = leased(book)
    progress = Commit(0, 3, {"x": np.arange(3.0)}, 24)
    assert book.commit(lease, progress, 20.0)
    assert book.lease("b", 49.0) is None
    assert book.next_timeout() == 50.0
    resumed = leased(book, "b", 50.0)
    assert resumed.commit == progress
    assert not book.renew(lease, 51.0)
    assert book.counts()["timedOut"] == book.counts()["resumed"] == 1


def test_the_first_result_wins_even_after_its_lease_timed_out() -> None:
    book = ledger(request())
    lease = leased(book)
    other = leased(book, "b", LEASE)
    assert book.done(lease, Result(0, {"reward": 1.0}))
    assert not book.done(other, Result(0, {"reward": 2.0}))
    assert not book.renew(other, LEASE)
    assert [result.payload for _, result in book.consume([request().id], 0)] == [{"reward": 1.0}]
    assert not book.done(lease, Result(0, {"reward": 1.0}))
    assert book.consume([request().id], 0) == []
    assert book.counts()["duplicates"] == 2
    assert book.counts()["consumed"] == 1


def test_a_result_after_the_end_of_its_request_is_late() -> None:
    book = ledger(request())
    lease = leased(book)
    assert book.supersede([request().id]) == 1
    assert not book.commit(lease, Commit(0, 1, {}), 1.0)
    assert not book.done(lease, Result(0, {}))
    assert (book.counts()["late"], book.counts()["superseded"], book.counts()["open"]) == (1, 1, 0)


def test_progress_without_a_lease_counts_only_if_it_is_further() -> None:
    book = ledger(request())
    lease = leased(book)
    other = leased(book, "b", LEASE)
    assert not book.commit(lease, Commit(0, 4, {}), LEASE)
    assert not book.commit(lease, Commit(0, 3, {}), LEASE)
    assert not book.commit(lease, Commit(1, 9, {}), LEASE)
    assert book.surrender(other)
    resumed = leased(book, "c", LEASE).commit
    assert resumed is not None
    assert resumed.step == 4
    assert book.counts()["staleCommits"] == 2


def test_surrender_and_revoke_free_the_request_at_once() -> None:
    book = ledger(request(0), request(1))
    first, second = leased(book), leased(book)
    assert book.surrender(first, Commit(0, 2, {}))
    assert not book.surrender(first)
    assert book.revoke("a") == [second.request.id]
    assert leased(book, "b").commit == Commit(0, 2, {})
    assert book.lease("b", 0.0) is not None


def test_rollouts_come_before_exploring_and_resumed_ones_before_others() -> None:
    book = ledger(request(1, 1), request(2, 0), request(3, 0, EXPLORE), request(4, 2))
    order = [leased(book) for _ in range(4)]
    assert [one.request.seed for one in order] == [2, 1, 4, 3]
    book.surrender(order[0])
    book.surrender(order[2], Commit(0, 1, {}))
    assert [leased(book).request.seed for _ in range(2)] == [4, 2]
    assert ledger(request(3, 0, EXPLORE)).lease("a", 0.0, [ROLLOUT]) is None


@pytest.mark.parametrize(
    ("kind", "age", "consumed"), [(ROLLOUT, 0, 1), (ROLLOUT, 1, 0), (EXPLORE, 1, 1), (EXPLORE, 2, 0)]
)
def test_a_result_that_is_too_old_expires(kind: RequestKind, age: int, consumed: int) -> None:
    book = ledger(request(kind=kind))
    book.done(leased(book), Result(5, {}))
    assert len(book.consume([request(kind=kind).id], 5 + age)) == consumed
    assert book.counts()["expired"] == 1 - consumed


def test_a_request_without_progress_expires_after_its_attempts() -> None:
    book = RequestLedger(LEASE, max_attempts=3)
    book.plan([request()])
    for attempt in range(3):
        book.commit(leased(book), Commit(0, attempt, {}), 0.0)
        book.revoke("a")
    for _ in range(3):
        leased(book)
        book.revoke("a")
    assert book.state(request().id) is RequestState.EXPIRED
    assert book.counts()["exhausted"] == 1


def test_a_closed_iteration_is_dropped_and_cannot_be_planned_again() -> None:
    book = ledger(request(0), request(1), request(0, 1))
    lease = leased(book)
    book.done(lease, Result(0, {}))
    book.consume([lease.request.id], 0)
    assert book.close_iterations(1) == 1
    assert book.select() == [request(0, 1)]
    assert not book.done(lease, Result(0, {}))
    assert book.counts()["unknown"] == 1
    with pytest.raises(InvalidRequest, match="iteration 0 has ended; plan for 1 or later"):
        book.plan([request(5)])


def test_open_requests_are_bounded() -> None:
    book = RequestLedger(LEASE, max_open=2)
    with pytest.raises(InvalidRequest, match="2 requests are open"):
        book.plan(map(request, range(3)))


def test_a_saved_ledger_keeps_every_bit_and_its_leases() -> None:
    book = ledger(request(0), request(1), request(2))
    state = {"x": np.array([0.1, np.nan, -0.0], np.float32), "steps": [1, 2], "empty": np.zeros((0, 2))}
    book.commit(leased(book), Commit(0, 1, state, 12), 10.0)
    done = leased(book)
    book.done(done, Result(0, {"reward": np.float64(0.1)}))
    saved = book.state_dict()
    loaded = RequestLedger(LEASE)
    loaded.load_state_dict(saved)
    assert loaded.counts() == book.counts()
    assert loaded.next_timeout() == 40.0
    resumed = leased(loaded, "b", 40.0).commit
    assert resumed is not None
    assert resumed.state["x"].tobytes() == state["x"].tobytes()
    assert (resumed.state["empty"].shape, resumed.state["steps"]) == ((0, 2), [1, 2])
    ((_, result),) = loaded.results(ROLLOUT, 0)
    assert result.payload["reward"] == 0.1


def test_a_lease_of_an_earlier_driver_is_no_lease_of_this_one() -> None:
    book = ledger(request(0), request(1))
    saved = book.state_dict()
    earlier = leased(book)
    loaded = RequestLedger(LEASE)
    loaded.load_state_dict(saved)
    later = leased(loaded, "b")
    assert (earlier.request, earlier.number) == (later.request, later.number)
    assert not loaded.renew(earlier, 1.0)
    assert loaded.renew(later, 1.0)


class Driver:
    """A driver with workers that vanish, repeat results and report late. It crashes back to saved states."""

    def __init__(self, random: Random, kind: type[RequestLedger] = RequestLedger) -> None:
        self.random = random
        self.kind = kind
        self.now = 0.0
        self.version = 0
        self.book = self.empty_book()
        self.leases: list[Lease] = []
        self.consumed: list[str] = []
        """Ids of the requests that the trainer has used. They go back with the trainer's weights."""
        self.planned: set[str] = set()
        self.saved: list[tuple[dict[str, bytes], list[str], set[str], int]] = []

    def empty_book(self) -> RequestLedger:
        return self.kind(LEASE, max_age={ROLLOUT: 1, EXPLORE: 2}, max_open=60, max_attempts=5)

    def step(self) -> None:
        act = self.random.choice(
            [self.plan, self.pull, self.pull, self.work, self.work, self.kill, self.rare]
        )
        act()
        self.check()

    def rare(self) -> None:
        self.random.choice([self.train, self.train, self.drop, self.save, self.crash])()

    def plan(self) -> None:
        kind = self.random.choice([*RequestKind])
        requests = [request(self.random.randrange(6), self.version, kind, self.version) for _ in range(3)]
        self.book.plan(requests)
        self.planned |= {one.id for one in requests}

    def pull(self) -> None:
        self.now += self.random.choice([0.0, 5.0, 31.0])
        if (lease := self.book.lease(self.random.choice("abc"), self.now)) is not None:
            self.leases = [*self.leases[-12:], lease]

    def work(self) -> None:
        for lease in self.random.choices(self.leases, k=4) if self.leases else ():
            commit = Commit(lease.request.version, self.random.randrange(8), {})
            result = Result(lease.request.version, {"seed": lease.request.seed})
            match self.random.randrange(5):
                case 0 | 1:
                    self.book.done(lease, result)
                case 2:
                    self.book.commit(lease, commit, self.now)
                case 3:
                    self.book.surrender(lease, commit)
                case _:
                    self.book.renew(lease, self.now)

    def kill(self) -> None:
        self.book.revoke(self.random.choice("abc"))

    def train(self) -> None:
        done = [one.id for one in self.book.select([RequestState.DONE])]
        for one, result in self.book.consume(done * 2, self.version):
            assert self.version - result.version <= (2 if one.kind is EXPLORE else 1)
            assert result.payload == {"seed": one.seed}
            self.consumed.append(one.id)
        self.version += 1
        if self.random.random() < 0.3:
            self.book.close_iterations(self.version - 1)

    def drop(self) -> None:
        some = [one.id for one in self.book.select()][::3]
        self.random.choice([self.book.supersede, self.book.expire])(some)

    def save(self) -> None:
        kept = [*self.consumed], {*self.planned}, self.version
        self.saved = [*self.saved[-3:], (self.book.state_dict(), *kept)]

    def crash(self) -> None:
        if self.saved:
            state, consumed, planned, self.version = self.random.choice(self.saved)
            self.consumed, self.planned = [*consumed], {*planned}
            self.book = self.empty_book()
            self.book.load_state_dict(state)

    def check(self) -> None:
        """Each request has ended at most once, and none is missing."""
        assert len(self.consumed) == len(set(self.consumed))
        counts = self.book.counts()
        endings = [counts[name] for name in ("consumed", "expired", "superseded")]
        assert counts["planned"] == len(self.planned) == counts["open"] + sum(endings)
        assert counts["consumed"] == len(self.consumed)
        assert counts["open"] == len(self.book.select())

    def run(self) -> None:
        for _ in range(150):
            self.step()
        self.finish()

    def finish(self) -> None:
        """With one worker that works, every open request ends."""
        self.now += LEASE
        while (lease := self.book.lease("d", self.now)) is not None:
            assert self.book.done(lease, Result(self.version, {"seed": lease.request.seed}))
        self.train()
        self.check()
        assert self.book.counts()["open"] == 0


@given(st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_each_request_ends_once_whatever_happens(seed: int) -> None:
    Driver(Random(seed)).run()


class TakesRepeats(RequestLedger):
    """Every result counts, even after the end of its request."""

    def done(self, lease: Lease, result: Result) -> bool:
        entry = self._entries.get(lease.request.id)
        if entry is not None and entry.state in (RequestState.CONSUMED, RequestState.EXPIRED):
            entry.state = RequestState.PLANNED
        return super().done(lease, result)


class ForgetsTheLost(RequestLedger):
    """The requests of a lost worker vanish."""

    def revoke(self, worker: str) -> list[str]:
        found = super().revoke(worker)
        for key in found:
            self._entries.pop(key)
        return found


class AnyAge(RequestLedger):
    """No result is too old."""

    def __init__(self, lease_seconds: float, **options: Any) -> None:
        super().__init__(lease_seconds, **{**options, "max_age": {ROLLOUT: 99, EXPLORE: 99}})


class SavesNothing(RequestLedger):
    """After a crash the ledger is empty."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


@pytest.mark.parametrize("broken", [TakesRepeats, ForgetsTheLost, AnyAge, SavesNothing])
def test_a_broken_ledger_is_found(broken: type[RequestLedger]) -> None:
    for seed in range(15):
        try:
            Driver(Random(seed), broken).run()
        except AssertionError:
            return
    pytest.fail("no seed found the fault")
