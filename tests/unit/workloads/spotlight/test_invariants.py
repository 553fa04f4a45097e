"""The invariants of the engine under losses at every phase, on live workers with a virtual clock.

Each negative control has one broken part, which the same checks must find. The README of the engine lists all
invariants and their tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.workloads.spotlight.virtual_live import (
    BATCH,
    LEASE,
    MAX_AGE,
    PARAMS,
    PHASE,
    STEPS,
    TICK,
    TRAINING,
    Hung,
    Rig,
    Script,
    virtual,
)

from convoy_workloads.engines.spotlight.live.live_workers import LiveWorkers
from convoy_workloads.engines.spotlight.workers import Finished
from convoy_workloads.spot.ledger.entry import Entry
from convoy_workloads.spot.ledger.node_seconds import Capacity, NodeLabel
from convoy_workloads.spot.ledger.request import Commit, Lease, Request, RequestKind, RequestState, Result
from convoy_workloads.spot.ledger.requests import RequestLedger

SAMPLES = PARAMS.prompts_per_iteration * PARAMS.group_size
ROUNDS = 3
SLACK = 4 * TICK


class Witness:
    """Notes what the trainer consumes, and the weights of the first result of each request."""

    def __init__(self, ledger: RequestLedger) -> None:
        self.used: list[tuple[Request, int]] = []
        """Consumed requests, and the age of their weights."""
        self.versions: dict[str, int] = {}
        self._consume, self._done = ledger.consume, ledger.done
        ledger.consume = self.consume  # type: ignore[method-assign]
        ledger.done = self.done  # type: ignore[method-assign]

    def consume(self, ids: Any, version: int) -> list[tuple[Request, Result]]:
        found = self._consume(ids, version)
        self.used += [(request, version - result.version) for request, result in found]
        return found

    def done(self, lease: Lease, result: Result) -> bool:
        first = self._done(lease, result)
        if first:
            self.versions[lease.request.id] = result.version
        return first


def verify(scripts: Sequence[Script], bound: float, least: int = SAMPLES, **parts: Any) -> Rig:
    """Carry out a few iterations and check all invariants. `bound`: longest time of an iteration. `least`:
    fewest samples that each one trains on.
    """
    with virtual(scripts, **parts) as rig:
        witness = Witness(rig.ledger)
        for _ in range(ROUNDS):
            before = rig.clock.now
            report = rig.iterate()
            assert rig.clock.now - before <= bound + SLACK, "the iteration lasts too long"
            check_requests(rig, witness)
            assert report.trained >= least, "too few samples"
            check_ages(rig, witness)
            check_account(rig)
        for one in rig.trained:
            assert [*one.walk.path[1:, 0]] == [*range(1, STEPS + 1)], "each step once, in order"
        return rig


def check_requests(rig: Rig, witness: Witness) -> None:
    counts = rig.ledger.counts()
    ends = sum(counts[name] for name in ("open", "consumed", "expired", "superseded"))
    assert counts["planned"] == ends and counts["open"] == len(rig.ledger.select()), "requests are missing"
    used = {request.id for request, _ in witness.used}
    assert len(used) == len(witness.used) == counts["consumed"], "a request is consumed twice"


def check_ages(rig: Rig, witness: Witness) -> None:
    assert all(0 <= age <= MAX_AGE[request.kind] for request, age in witness.used), "a sample is too old"
    number = rig.loop.iteration
    for prompt, seeds in rig.loop._choice.seeds.items():
        for seed in seeds:
            request = Request("job", number, prompt, seed, RequestKind.EXPLORE, number)
            oldest = number - 1 - PARAMS.staleness.explore
            assert witness.versions[request.id] >= oldest, "a seed is chosen by too old weights"


def check_account(rig: Rig) -> None:
    """Check that the labels have each second of each worker once, and add up to the bill."""
    now, nodes = rig.clock.now, rig.workers.nodes
    lived = {Capacity.SPOT: 0.0, Capacity.ON_DEMAND: now - rig.began}
    for start, end in rig.cluster.lives.values():
        lived[Capacity.SPOT] += min(end, now) - start
    for capacity, seconds in lived.items():
        labelled = sum(one.seconds for one in nodes.charges(now) if one.capacity is capacity)
        assert labelled == pytest.approx(seconds), "seconds without a label"
        price = PARAMS.cluster.spot_price if capacity is Capacity.SPOT else PARAMS.cluster.on_demand_price
        assert nodes.billed(now).get(capacity, 0.0) == pytest.approx(seconds * price / 3600)
    assert nodes.residual(now) == pytest.approx(0.0, abs=1e-9), "cost without a label"


FATES = st.sampled_from(["silent", "reported", "late", "repeats", "stale"])
SCRIPTS = st.builds(Script, st.floats(0.0, 30.0), st.integers(0, 40), FATES)


@settings(max_examples=cases(20), deadline=None, derandomize=True)
@given(st.lists(SCRIPTS, max_size=5))
def test_the_invariants_hold_whenever_workers_are_lost(scripts: list[Script]) -> None:
    """Each worker holds up the loop for at most one lease. Then the trainer computes all requests alone, in
    the worst case one by one. A sample of too old weights expires, so it may be missing.
    """
    stale = any(one.fate == "stale" for one in scripts)
    verify(scripts, TRAINING + 8 * BATCH + len(scripts) * LEASE, 0 if stale else SAMPLES)


@settings(max_examples=cases(10), deadline=None, derandomize=True)
@given(st.integers(0, 5), st.floats(0.0, 40.0), st.sampled_from(["silent", "reported"]))
def test_the_loss_of_all_workers_at_once_costs_at_most_a_lease(count: int, at: float, fate: Any) -> None:
    verify([Script(fate=fate, end=at)] * count, TRAINING + 5 * BATCH + LEASE)


HOARDERS = [Script(fate="hoards")] * 5
"""The worst case for the trainer: workers that take every lease, and never answer."""


@pytest.mark.parametrize("lag", [0.0, 2.0])
def test_the_trainer_waits_for_silent_workers_until_its_deadlines_only(lag: float) -> None:
    """`lag`: the mailbox, which is a process of its own, answers late."""
    with virtual(HOARDERS, lag=lag) as rig:
        for _ in range(ROUNDS):
            before = rig.clock.now
            rig.iterate()
            assert rig.clock.now - before <= PHASE + TRAINING + 4 * (TICK + lag)
        for wait in (rig.workers.poll, lambda end: rig.workers.close(end - rig.clock.now)):
            for seconds in (0.0, 1.0, 50.0):
                end = rig.clock.now + seconds
                wait(end)
                assert rig.clock.now <= end + TICK + lag


# Negative controls


class Reopens(RequestLedger):
    """A result that comes after the end of its request opens the request again."""

    def done(self, lease: Lease, result: Result) -> bool:
        entry = self._entries.get(lease.request.id)
        if entry is not None and entry.result is not None:
            entry.state, entry.result = RequestState.DONE, result
            return True
        return super().done(lease, result)


class KeepsConsumed(RequestLedger):
    """A request that was consumed does not end, and is consumed or expired again."""

    def _end(self, entry: Entry, ending: RequestState) -> None:
        before = entry.state, entry.result
        super()._end(entry, ending)
        if ending is RequestState.CONSUMED:
            entry.state, entry.result = before


class Forgets(RequestLedger):
    """The request of a lost lease vanishes."""

    def _end_lease(self, entry: Entry, cause: str) -> str:
        key = super()._end_lease(entry, cause)
        del self._entries[key]
        return key


class NeverTimesOut(RequestLedger):
    """A silent worker keeps its leases for ever."""

    def time_out(self, now: float) -> list[str]:
        return []


class AnyAge(RequestLedger):
    """Weights of any age are good enough."""

    def __init__(self, lease_seconds: float, **options: Any) -> None:
        super().__init__(lease_seconds, **{**options, "max_age": dict.fromkeys(RequestKind, 99)})


class LosesAStep(RequestLedger):
    """The saved progress is one step behind its number."""

    def _save(self, entry: Entry, commit: Commit) -> None:
        steps = [*commit.state["steps"]]
        super()._save(entry, Commit(commit.version, commit.step, {"steps": [steps[0], *steps[2:]]}))


class MissesLabels(LiveWorkers):
    """A change of the label drops the time before it."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        nodes = self.nodes
        change = nodes.label

        def drop(node: str, label: NodeLabel, at: float) -> bool:
            known = change(node, label, at)
            if known:
                nodes._nodes[node].spans.clear()
            return known

        nodes.label = drop  # type: ignore[method-assign]


class BillsTheLost(LiveWorkers):
    """A worker that has ended stays on the bill."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._account.end = lambda worker: None  # type: ignore[method-assign]


class LeavesTheTrainerPaused(LiveWorkers):
    """The trainer's own worker gets no lease after the training."""

    def _settle_training(self) -> bool:
        ended = super()._settle_training()
        self.pause_own()
        return ended


class WaitsForResults(LiveWorkers):
    """The trainer waits for a result or the end of its update, without a deadline."""

    def poll(self, until: float) -> list[Finished]:
        return super().poll(float("inf"))


SILENT, REPORTED = [Script(messages=4)], [Script(messages=4, fate="reported")]
"""A worker that is lost after it has committed two steps of its rollouts."""
REPEATS, STALE = [Script(fate="repeats")] * 3, [Script(fate="stale")]
BROKEN: list[tuple[type[Any], list[Script], str]] = [
    (Reopens, REPEATS, "requests are missing"),
    (KeepsConsumed, [], "requests are missing"),
    (Forgets, REPORTED, "requests are missing"),
    (AnyAge, STALE, "a sample is too old"),
    (LosesAStep, SILENT, "each step once"),
    (MissesLabels, [], "seconds without a label"),
    (BillsTheLost, REPORTED, "seconds without a label"),
    (LeavesTheTrainerPaused, [], "lasts too long"),
    (NeverTimesOut, SILENT, "lasts too long"),
]


@pytest.mark.parametrize(("broken", "scripts", "finding"), BROKEN)
def test_a_broken_part_is_found(broken: type[Any], scripts: list[Script], finding: str) -> None:
    bound, least = TRAINING + 5 * BATCH + len(scripts) * LEASE, 0 if scripts is STALE else SAMPLES
    verify(scripts, bound, least)
    part = "ledger" if issubclass(broken, RequestLedger) else "workers"
    with pytest.raises(AssertionError, match=finding):
        verify(scripts, bound, least, **{part: broken})


def test_a_wait_without_a_deadline_is_found() -> None:
    with pytest.raises(Hung), virtual(HOARDERS, workers=WaitsForResults) as rig:
        rig.iterate()
