"""Random schedules of the alignment protocol: ranks of any speed, samples of any length, loaders that fail.

A schedule plays all ranks in one thread. Each turn, a random rank that can go on does one thing: read a
sample, send a message of an exchange, or take a step. Exchanges and steps are collectives: a rank goes on
when all ranks have reached it. So a schedule finds ranks that wait for each other, and collectives of which
two ranks disagree. Real processes would hang there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from convoy_workloads.data.alignment import Alignment, Counters, RankFailedError
from convoy_workloads.data.alignment_messages import AlignmentSettings, Plan, Proposal

LONGEST = 40
"""Length of the longest sample of a schedule."""


class BrokenPromise(AssertionError):
    """Raised if a schedule breaks a promise of the alignment. The message names the promise."""


@dataclass(frozen=True)
class Schedule:
    """The input of a schedule. The seed determines everything."""

    seed: int
    settings: AlignmentSettings
    shares: list[list[int]]
    """Lengths of the samples of each rank; 0 for a sample that goes into quarantine."""
    speeds: list[float]
    """Chance of each rank to be next, in proportion to the others."""
    failing: int | None = None
    """The rank whose loader fails before its last sample; None if no loader fails."""


@dataclass
class Outcome:
    """The end of a schedule."""

    steps: int
    rounds: int
    failed: bool
    samples: list[list[tuple[int, ...]]] = field(default_factory=list)
    """The samples of each step of each rank."""


def random_schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    rng = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    world = rng.randint(1, 5)
    most = rng.choice((0, 1, 3, 12, 24))
    spread = rng.choice((0, most))
    window = rng.choice((1, 2, 5, 8, 16))
    shares = [
        [rng.choice((0, rng.randint(1, LONGEST))) if rng.random() < 0.1 else rng.randint(1, LONGEST)
         for _ in range(max(0, most - rng.randint(0, spread)))]
        for _ in range(world)
    ]  # fmt: skip
    quota = rng.choice((None, rng.randint(1, 1 + world * most)))
    settings = AlignmentSettings(
        budget=rng.choice((LONGEST, 2 * LONGEST, 8 * LONGEST)),
        window=window,
        slots=rng.choice((0, 0, 1, 3)),
        warmup_rounds=rng.choice((0, 0, 2)),
        overhead=rng.choice((None, None, 0, 30)),
        mode="join" if rng.random() < 0.75 else "quota",
        quota=quota,
        seed=seed,
    )
    failing = rng.randrange(world) if rng.random() < 0.1 else None
    return Schedule(seed, settings, shares, [rng.choice((0.01, 1.0, 10.0)) for _ in range(world)], failing)


def numbered(shares: list[list[int]]) -> list[list[tuple[int, int]]]:
    """Return the shares as pairs of a sample's number and its length. Numbers are unique over all ranks."""
    found, first = [], 0
    for lengths in shares:
        found.append(list(enumerate(lengths, first)))
        first += len(lengths)
    return found


def play(schedule: Schedule, turns: int = 1_000_000) -> Outcome:
    """Run a schedule to its end. Raises BrokenPromise if it breaks a promise."""
    settings, world = schedule.settings, len(schedule.shares)
    rng = random.Random(schedule.seed)  # noqa: S311 - a schedule, not a secret
    ranks = [_Rank(schedule, number, share) for number, share in enumerate(numbered(schedule.shares))]
    for _ in range(turns):
        ready = [one for one in ranks if one.waits_at is None and not one.ended]
        if ready:
            weights = [schedule.speeds[one.number] for one in ready]
            rng.choices(ready, weights)[0].run()
        elif all(one.ended for one in ranks):
            return _checked(schedule, ranks)
        else:
            _complete([one.waits_at for one in ranks], ranks)
    raise BrokenPromise(f"seed {schedule.seed}: {world} ranks did not end, {settings}")


class _Rank:
    """One rank of a schedule. `waits_at` is the collective that it has reached, as kind and size."""

    def __init__(self, schedule: Schedule, number: int, share: list[tuple[int, int]]) -> None:
        self.number = number
        self.steps: list[tuple[int, ...]] = []
        self.sums: list[tuple[int, int]] = []
        self.waits_at: tuple[str, int] | None = None
        self.message: Proposal | Plan | None = None
        self.ended = False
        self.failed = False
        self.counters = Counters()
        world = len(schedule.shares)
        self.alignment = Alignment(schedule.settings, number, world, 0, self.counters)
        self.lengths = dict(share)
        self._samples: Iterator[tuple[int, int]] = iter(share)
        self._fails_at = max(0, len(share) - 1) if schedule.failing == number else -1
        self._filling = True

    def run(self) -> None:
        """Do the next thing."""
        alignment = self.alignment
        if self._filling and alignment.wants_sample:
            self._read()
        elif self._filling:
            self.message = alignment.propose()
            self.waits_at = "proposals", len(self.message.numbers())
        elif (step := alignment.next_step()) is None:
            self._filling = True
        else:
            self.steps.append(step.samples)
            self.sums.append((step.all_samples, step.all_weights))
            self.waits_at = "step", len(self.steps)

    def receive(self, messages: list[Proposal | Plan | None]) -> None:
        """Go on after a collective in which all ranks have sent these messages."""
        kind, _ = self.waits_at or ("", 0)
        self.waits_at = None
        if kind == "proposals":
            try:
                self.alignment.receive_proposals([one for one in messages if isinstance(one, Proposal)])
            except RankFailedError:
                self.failed = self.ended = True
                return
            if self.alignment.ended:
                self.ended = True
                return
            self.message = self.alignment.plan()
            self.waits_at = "plans", self.alignment.plan_length
        elif kind == "plans":
            length, steps = self.alignment.plan_length, len(messages[0].steps)  # type: ignore[union-attr]
            # Plans travel as numbers, as between real ranks.
            sent = [one.numbers(length) for one in messages if isinstance(one, Plan)]
            self.alignment.receive_plans([Plan.from_numbers(one, steps) for one in sent])
            self._filling = False

    def _read(self) -> None:
        if self._fails_at >= 0 and self._fails_at == self.alignment.samples_read:
            self.alignment.fail()
            return
        found = next(self._samples, None)
        if found is None:
            self.alignment.drain()
        elif found[1] == 0:
            self.alignment.skip()
        else:
            self.alignment.add(found[0], found[1], found[1])


def _complete(points: list[tuple[str, int] | None], ranks: list[_Rank]) -> None:
    """Complete the collective that all ranks have reached."""
    if len(set(points)) != 1:
        raise BrokenPromise(f"the ranks wait for each other at {points}")
    messages = [one.message for one in ranks]
    for one in ranks:
        one.receive(messages)


def _checked(schedule: Schedule, ranks: list[_Rank]) -> Outcome:
    """Check the promises of a schedule that has ended, and return its outcome."""
    settings, first = schedule.settings, ranks[0]
    failed = {one.failed for one in ranks}
    _promise(len(failed) == 1, "all ranks fail or none", schedule)
    outcome = Outcome(len(first.steps), first.counters.rounds, first.failed, [one.steps for one in ranks])
    limit = settings.round_limit(max(map(len, schedule.shares)), len(ranks))
    _promise(outcome.rounds <= limit, f"at most {limit} rounds", schedule)
    _promise(len({len(one.steps) for one in ranks}) == 1, "equal numbers of steps", schedule)
    _promise(all(one.sums == first.sums for one in ranks), "the same sums on all ranks", schedule)
    for one in ranks:
        for step in one.steps:
            longest = max((one.lengths[sample] for sample in step), default=0)
            _promise(len(step) * longest <= settings.budget, "padded tokens within the budget", schedule)
    used = [sample for one in ranks for step in one.steps for sample in step]
    usable = [sample for one in ranks for sample, length in one.lengths.items() if length]
    _promise(len(used) == len(set(used)), "no sample twice", schedule)
    _promise(set(used) <= set(usable), "no sample from the quarantine", schedule)
    if outcome.failed:
        return outcome
    if settings.mode == "join":
        _promise(sorted(used) == usable, "every sample once", schedule)
        quarantined = sum(len(one.lengths) for one in ranks) - len(usable)
        _promise(first.alignment.all_quarantined == quarantined, "a full count of the quarantine", schedule)
    else:
        _promise(all(step for one in ranks for step in one.steps), "no empty step in quota mode", schedule)
        if settings.quota is not None and outcome.steps:
            before = sum(sums[0] for sums in first.sums[:-1])
            _promise(before < settings.quota, "no step after the quota", schedule)
    return outcome


def _promise(kept: bool, what: str, schedule: Schedule) -> None:
    if not kept:
        raise BrokenPromise(f"seed {schedule.seed}: not {what}; {schedule}")
