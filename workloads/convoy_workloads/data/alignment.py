"""The alignment of one rank with the others: all ranks take the same number of steps, although each forms its
batches from the lengths of its own samples.

A rank fills its pool to a window and forms groups under the token budget. Then two exchanges follow, in
which every rank gets the messages of all ranks:

1. `Proposal`: numbers of groups, samples and free slots. All ranks derive the same number of steps t: the
   most groups of any rank, but not more than the slots or the samples of any rank that has samples.
2. `Plan`: the samples of each of the t steps. A rank with fewer groups splits the largest. A rank with more
   returns the smallest to its pool. A rank without samples plans empty steps.

After the plans, all ranks know the samples and weights of every step, so they scale losses exactly, stop at
the same quota, and can resume each other's work. Termination: with n samples at most on a rank, window w and
s slots, a rank needs at most ceil(n/w) rounds that empty all pools, ceil(n/s) rounds that the slots limit
(none if s >= w), and one round for each rank that runs out of samples earlier: `round_limit`.

This class waits for nothing and knows no torch. The caller feeds it samples and messages.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_workloads.data.alignment_messages import AlignedStep, AlignmentSettings, Plan, Proposal
from convoy_workloads.packing.token_budget import group_by_cost, group_greedily, padded_tokens, split_to


class RankFailedError(Exception):
    """Raised on every rank if some ranks cannot go on. The message names them."""


@dataclass(slots=True)
class Counters:
    """Counts of a rank since the start of the training."""

    rounds: int = 0
    splits: int = 0
    """Groups that were split because another rank had more."""
    overflows: int = 0
    """Groups that were returned to the pool."""
    empty_steps: int = 0
    padded: int = 0
    """Padded tokens of all batches."""
    tokens: int = 0
    """Tokens of all batches without padding."""
    samples: int = 0


class Alignment:
    """One rank's side of the alignment during an epoch.

    The order of calls in a round: `add` while `wants_sample`, or `drain` or `fail`; `propose`;
    `receive_proposals`; unless `ended`, `plan` and `receive_plans`; then `next_step` until it returns None.
    """

    def __init__(
        self, settings: AlignmentSettings, rank: int, world: int, epoch: int, counters: Counters
    ) -> None:
        self.settings = settings
        self.counters = counters
        self.ended = False
        self._quarantined = [0] * world
        self._rank, self._world, self._epoch = rank, world, epoch
        self._round = 0
        self._read = [0] * world
        self.used = 0
        """Samples that all ranks have used so far."""
        self._pool: dict[int, tuple[int, int]] = {}
        """Length and weight of each sample that is not planned yet, by its number."""
        self._planned: dict[int, tuple[int, int]] = {}
        self._plans: list[Plan] = []
        self._next = 0
        self._drained = False
        self._failed = False
        self._groups: list[list[int]] = []
        self._target = 0
        self._most_samples = 0
        self._closes = False
        """True if the epoch ends after the planned steps, because the quota is met."""

    @property
    def wants_sample(self) -> bool:
        """True if the pool needs another sample before the round can start."""
        full = len(self._pool) >= self.settings.window_of(self._round)
        return not (full or self._drained or self._failed or self._closes)

    @property
    def all_quarantined(self) -> int:
        """Number of samples of all ranks in quarantine, as of the last proposals."""
        return sum(self._quarantined)

    @property
    def samples_read(self) -> int:
        """Number of samples of this rank's share that were read so far."""
        return self._read[self._rank]

    def skip(self) -> None:
        """Count one sample of the share that is not used, because it went into quarantine."""
        self._read[self._rank] += 1
        self._quarantined[self._rank] += 1

    def add(self, sample: int, length: int, weight: int) -> None:
        """Add the next sample of the share to the pool."""
        self._read[self._rank] += 1
        self._pool[sample] = length, weight

    def drain(self) -> None:
        """Record that the share has no more samples."""
        self._drained = True

    def fail(self) -> None:
        """Record that this rank cannot go on, so that the next exchange stops all ranks."""
        self._failed = True

    def propose(self) -> Proposal:
        """Form the groups of this round, and return the message about them."""
        self._round += 1
        self.counters.rounds += 1
        samples = list(self._pool)
        lengths = [self._pool[one][0] for one in samples]
        settings = self.settings
        if self._failed:
            grouped = []
        elif settings.overhead is None:
            grouped = group_greedily(lengths, settings.budget)
        else:
            grouped = group_by_cost(lengths, settings.budget, settings.overhead)
        self._groups = [[samples[one] for one in group] for group in grouped]
        return Proposal(
            groups=len(self._groups),
            samples=len(self._pool),
            drained=int(self._drained),
            failed=int(self._failed),
            quarantined=self._quarantined[self._rank],
            read=self._read[self._rank],
        )

    def receive_proposals(self, proposals: Sequence[Proposal]) -> None:
        """Derive the number of steps from the proposals of all ranks, in the order of the ranks.

        Raises RankFailedError if a rank cannot go on.
        """
        if failed := [str(rank) for rank, one in enumerate(proposals) if one.failed]:
            raise RankFailedError(f"the loader of rank {', '.join(failed)} failed")
        self._quarantined = [one.quarantined for one in proposals]
        self._read = [one.read for one in proposals]
        active = [one for one in proposals if one.samples]
        short = self.settings.mode == "quota" and len(active) < len(proposals)
        if not active or short or self._closes:
            self.ended = True
            return
        slots = self.settings.slots or self.settings.window
        self._target = min(max(one.groups for one in active), slots, *(one.samples for one in active))
        self._most_samples = max(one.samples for one in active)

    @property
    def plan_length(self) -> int:
        """Number of integers in the message of the second exchange. It is the same on all ranks."""
        return 2 * self._target + self._most_samples

    def plan(self) -> Plan:
        """Split or return groups until there is one for each step, and return the message about them."""
        samples = list(self._pool)
        lengths = [self._pool[one][0] for one in samples]
        number = {sample: place for place, sample in enumerate(samples)}
        groups = [[number[one] for one in group] for group in self._groups]
        if groups and len(groups) < self._target:
            self.counters.splits += self._target - len(groups)
            groups = split_to(groups, lengths, self._target)
        # Ranks take their large groups in the same step, so that no rank waits for another.
        groups.sort(key=lambda group: -padded_tokens(group, lengths))
        self.counters.overflows += len(groups[self._target :])
        groups = groups[: self._target]
        steps = [tuple(samples[one] for one in group) for group in groups]
        steps += [()] * (self._target - len(steps))
        order = list(range(self._target))
        seed = f"{self.settings.seed}/{self._epoch}/{self._round}"
        random.Random(seed).shuffle(order)  # noqa: S311 - an order, not a secret
        steps = [steps[one] for one in order]
        taken = {sample for step in steps for sample in step}
        return Plan(
            tuple(steps),
            tuple(sum(self._pool[one][1] for one in step) for step in steps),
            tuple(one for one in samples if one not in taken),
        )

    def receive_plans(self, plans: Sequence[Plan]) -> None:
        """Start the steps that all ranks have planned. In quota mode, the last step is the one that meets
        the quota.
        """
        count = self._target
        if self.settings.mode == "quota" and self.settings.quota is not None:
            total = self.used
            for number in range(self._target):
                total += sum(len(plan.steps[number]) for plan in plans)
                if total >= self.settings.quota:
                    count, self._closes = number + 1, True
                    break
        self._plans = [plan.first(count) for plan in plans]
        self._next = 0
        mine = self._plans[self._rank]
        for sample in (one for step in mine.steps for one in step):
            self._planned[sample] = self._pool.pop(sample)

    def next_step(self) -> AlignedStep | None:
        """Return the next step; None if the round has no more."""
        if not self._plans or self._next >= len(self._plans[0].steps):
            self._plans = []
            return None
        number = self._next
        self._next += 1
        mine = self._plans[self._rank]
        samples = mine.steps[number]
        lengths = [self._planned.pop(one)[0] for one in samples]
        all_samples = sum(len(plan.steps[number]) for plan in self._plans)
        self.used += all_samples
        self.counters.empty_steps += not samples
        self.counters.samples += len(samples)
        self.counters.tokens += sum(lengths)
        self.counters.padded += len(lengths) * max(lengths, default=0)
        weights = sum(plan.weights[number] for plan in self._plans)
        return AlignedStep(samples, mine.weights[number], all_samples, weights)

    # The state between two steps, for checkpoints.

    def state(self) -> dict[str, Any]:
        """Return the state of all ranks as plain data. It is the same on all ranks, because all have the
        same plans.

        Between rounds a rank knows only its own pool. So call this between `receive_plans` and the next
        `propose`, before which the plans with no more steps are dropped by `next_step`.
        """
        plans = self._plans
        return {
            "world": self._world,
            "epoch": self._epoch,
            "round": self._round,
            "read": list(self._read),
            "used": self.used,
            "closes": self._closes,
            "quarantined": list(self._quarantined),
            "plans": [plan.after(self._next).state() for plan in plans],
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a run with the same number of ranks. Afterwards the caller reads the
        samples of `resumed_samples` again and passes them to `restore_sample`.
        """
        self._round, self._read = state["round"], list(state["read"])
        self._quarantined = list(state["quarantined"])
        self.resume_used(state)
        self._plans = [Plan.from_state(one) for one in state["plans"]]
        self._next = 0

    def resume_used(self, state: Mapping[str, Any]) -> None:
        """Take over how much of the quota is used, from the state of a run with any number of ranks."""
        self.used, self._closes = state["used"], state["closes"]

    def resumed_samples(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return this rank's samples in the planned steps, and those in the pool."""
        if not self._plans:
            return (), ()
        mine = self._plans[self._rank]
        return tuple(one for step in mine.steps for one in step), mine.pool

    def restore_sample(self, sample: int, length: int, weight: int, planned: bool) -> None:
        """Take back a sample of the planned steps or of the pool."""
        (self._planned if planned else self._pool)[sample] = length, weight

    def changed_steps(self) -> list[int]:
        """Return the samples of the planned steps that no longer fit, because their lengths or weights have
        changed since the steps were planned.
        """
        found: list[int] = []
        for step, weight in zip(*self.own_steps(), strict=True):
            parts = [self._planned[one] for one in step]
            padded = len(parts) * max((length for length, _ in parts), default=0)
            if padded > self.settings.budget or sum(one for _, one in parts) != weight:
                found += step
        return found

    def own_steps(self) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """Return the samples and the weights of this rank's planned steps."""
        if not self._plans:
            return (), ()
        mine = self._plans[self._rank]
        return mine.steps, mine.weights
