"""Batches that are planned in advance: the baselines of online batching.

All but `fixed` need the length of every sample before the epoch. A plan has, for each step, the samples of
each rank.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from convoy_workloads.data.alignment import Counters
from convoy_workloads.data.epoch_order import epoch_order, share
from convoy_workloads.data.online_batches import BatchInfo
from convoy_workloads.data.padding import pad_batch
from convoy_workloads.packing.token_budget import group_by_cost, group_greedily, padded_tokens, split_to

Plan = list[list[tuple[int, ...]]]
MEGABATCHES = 50
"""Batches, in a megabatch of `grouped`, of each rank: the number in Hugging Face's LengthGroupedSampler."""


@dataclass(frozen=True)
class Limits:
    """The limits of batches."""

    budget: int
    """Maximum tokens of a batch after padding."""
    longest: int
    """Maximum tokens of a sample."""
    overhead: int | None = None
    """Tokens that take as long as the fixed cost of a batch. None: groups are filled."""


def fixed(order: Sequence[int], world: int, size: int) -> Plan:
    """Return batches of `size` samples in the order of the epoch."""
    shares = [share(order, rank, world) for rank in range(world)]
    count = -(-len(shares[0]) // size)
    return [[tuple(one[at * size : (at + 1) * size]) for one in shares] for at in range(count)]


def grouped(order: Sequence[int], world: int, size: int, lengths: Sequence[int]) -> Plan:
    """Return batches of `size` samples of like length: the order is cut into megabatches, and each is sorted
    by length.
    """
    mega = size * world * min(MEGABATCHES, max(1, len(order) // (size * world * 4)))
    parts = [order[at : at + mega] for at in range(0, len(order), mega)]
    return fixed([one for part in parts for one in sorted(part, key=lambda one: -lengths[one])], world, size)


def oracle(
    order: Sequence[int], world: int, limits: Limits, lengths: Sequence[int], generator: random.Random
) -> Plan:
    """Return the batches under the budget that sorting all samples allows. The ranks of a step get batches
    of like length. The order of the steps is random.
    """
    own = [lengths[one] for one in order]
    if limits.overhead is None:
        groups = group_greedily(own, limits.budget)
    else:
        groups = group_by_cost(own, limits.budget, limits.overhead)
    short = -len(groups) % world
    if len(groups) + short <= len(order):
        groups = split_to(groups, own, len(groups) + short)
    groups.sort(key=lambda group: -padded_tokens(group, own))
    batches = [tuple(order[one] for one in group) for group in groups]
    batches += [()] * (-len(batches) % world)
    plan = [batches[at : at + world] for at in range(0, len(batches), world)]
    generator.shuffle(plan)
    return plan


class PlannedBatches:
    """Batches by a plan, with the same attributes as OnlineBatches."""

    def __init__(
        self, dataset: Any, plan: Callable[[int], Plan], lengths: Sequence[int], rank: int, world: int
    ) -> None:
        """`plan` returns the plan of an epoch. `lengths` must have the length of each planned sample."""
        self.rank, self.world = rank, world
        self.counters = Counters()
        self.info: BatchInfo | None = None
        self.epoch = 0
        self.quarantined: list[int] = []
        """The samples that the plans leave out, because they are empty."""
        self._dataset, self._plan, self._lengths = dataset, plan, lengths
        self._done = 0

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the epoch's batches of this rank."""
        plan = self._plan(self.epoch)
        for step in plan[self._done :]:
            self._done += 1
            yield self._batch(step)
        self.epoch, self._done = self.epoch + 1, 0

    def _batch(self, step: list[tuple[int, ...]]) -> Any:
        mine = step[self.rank]
        weights = [sum(self._lengths[one] for one in samples) for samples in step]
        own, total = weights[self.rank], sum(weights)
        self.info = BatchInfo(mine, own, sum(map(len, step)), total, own * self.world / total)
        self.counters.samples += len(mine)
        self.counters.tokens += own
        self.counters.padded += padded_tokens(mine, self._lengths)
        self.counters.empty_steps += not mine
        return pad_batch([self._dataset[one] for one in mine or (next(one[0] for one in step if one),)])

    def metrics(self) -> dict[str, float]:
        """Return what this rank has counted. There are no alignments."""
        one = self.counters
        none = ("align_rounds", "split_total", "overflow_total", "align_wait_seconds")
        ratio = 1 - one.tokens / one.padded if one.padded else 0.0
        return {"padding_ratio": ratio, **dict.fromkeys(none, 0), "quarantined_total": len(self.quarantined)}

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the newest batch."""
        state = {"epoch": self.epoch, "done": self._done, "world": self.world}
        return {"state": json.dumps({**state, "counters": asdict(self.counters)})}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue after a batch. Another number of ranks has other plans, so it repeats the epoch."""
        state = json.loads(saved["state"])
        self.epoch, self._done = state["epoch"], state["done"] if state["world"] == self.world else 0
        self.counters = Counters(**state["counters"])


def planned_batches(
    dataset: Any, lengths: Sequence[int], kind: str, limits: Limits, place: tuple[int, int, int]
) -> PlannedBatches:
    """Return the batches of a baseline: `fixed`, `grouped` or `oracle`.

    `place`: rank, number of ranks, and seed. Empty samples are left out, as online batching does.
    """
    rank, world, seed = place
    size = max(1, limits.budget // limits.longest)

    def plan(epoch: int) -> Plan:
        order = [one for one in epoch_order(len(lengths), seed, epoch, True) if lengths[one]]
        if kind == "fixed":
            return fixed(order, world, size)
        if kind == "grouped":
            return grouped(order, world, size, lengths)
        return oracle(order, world, limits, lengths, random.Random(f"{seed}/{epoch}"))  # noqa: S311

    found = PlannedBatches(dataset, plan, lengths, rank, world)
    found.quarantined = [number for number, length in enumerate(lengths) if not length]
    return found
