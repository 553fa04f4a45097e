"""What a table tells besides compute against peers: input, the host, communicators, and shifts of many at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from convoy_controllers.guard.robust import group_medians, others_median, spread
from convoy_controllers.guard.telemetry import Bools, Floats, Group, Ints, Table

_MOST = 32
"""Windows in a past."""
_STANDS_OUT = 4.0
"""Deviations from the others' median, from which on a rank's time is no noise."""
_ENOUGH = 4
"""Windows, before a level is compared with; also communicators that are alike, for one to be compared."""


@dataclass(frozen=True, slots=True, eq=False)
class InitialMean:
    """The mean of the first windows, by unit; it stands from then on."""

    mean: Floats
    count: Floats

    @classmethod
    def initial(cls, units: int) -> InitialMean:
        """Nothing known."""
        return cls(np.zeros(units), np.zeros(units))

    def rearranged(self, order: Ints) -> InitialMean:
        """Of other units: by each the number it had, or -1 for one of which nothing is known."""
        mean, count = np.zeros(len(order)), np.zeros(len(order))
        mean[order >= 0], count[order >= 0] = self.mean[order[order >= 0]], self.count[order[order >= 0]]
        return replace(self, mean=mean, count=count)

    def shift(self, values: Floats) -> Floats:
        """How far values are from it; NaN as long as little is known."""
        return np.where(self.count >= _ENOUGH, values - self.mean, np.nan)

    def learned(self, values: Floats, trusted: Bools) -> InitialMean:
        """With one more window of those units that are trusted, until enough are in it."""
        learns = ~np.isnan(values) & trusted & (self.count < _MOST)
        count = self.count + learns
        step = np.where(learns, values, self.mean) - self.mean
        return replace(self, mean=self.mean + step / np.maximum(count, 1), count=count)


def busy(table: Table) -> Floats:
    """Seconds that a rank works, by rank."""
    return np.maximum(table.compute + np.nan_to_num(table.optimizer), 1e-9)


def share(values: Floats, table: Table) -> Floats:
    """Logarithm of how much longer a rank's own part of the step is for these seconds."""
    return np.log1p(np.maximum(values, 0.0) / np.nanmedian(busy(table)))


def against_all(values: Floats) -> Floats:
    """By rank, beyond what the others have."""
    return values - others_median(values)


def middle(values: Floats) -> Floats:
    """The median of the known, as an array of one; NaN when nothing is known."""
    known = values[~np.isnan(values)]
    return np.array([np.median(known) if len(known) else np.nan])


def stepping(table: Table) -> Floats:
    """Seconds of one step without what it saves, the median of the ranks, as an array of one."""
    return middle(table.wall - table.save) / table.steps


def pauses(values: Floats) -> Floats:
    """What ranks that stand out have beyond the others, summed, as an array of one.

    A pause of one rank holds up all; where another one pauses each time no rank's own mean shows it, and the
    mean of all ranks shows one of many.
    """
    known = values[~np.isnan(values)]
    if len(known) < _ENOUGH:
        return np.array([np.nan])
    most = np.median(known) + _STANDS_OUT * spread(known)
    return np.array([np.maximum(known - most, 0.0).sum()])


def transfer(table: Table) -> Floats:
    """The least that a rank was held up by collectives, as an array of one; NaN unless all were heard.

    Who comes last waits for nobody. Over several steps it is another one each time, and this an upper bound.
    """
    return np.array([table.wait.min()])


def of_racks(values: Floats, rack: Ints) -> Floats:
    """By rack, its median beyond those of the other racks; needs four."""
    return _beyond(group_medians(values, rack))


def of_replicas(values: Floats, replica: Ints) -> Floats:
    """By replica, its quickest rank beyond those of the others: what ALL of its ranks have; needs four."""
    least = np.full(int(replica.max()) + 1, np.nan)
    np.fmin.at(least, replica, values)
    return _beyond(least)


def _beyond(values: Floats) -> Floats:
    return values - others_median(values) if len(values) >= _ENOUGH else np.full(len(values), np.nan)


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """The different values, and by element the number of its own."""
    kinds, numbers = np.unique(values, return_inverse=True)
    return kinds, numbers.reshape(-1).astype(np.int64)


def transfers(groups: Sequence[Group]) -> Floats:
    """By communicator, the logarithm of the seconds that the transfer took.

    Who comes last waits for nobody, so the least of the members' own durations is the transfer itself; no two
    clocks are compared. NaN: not all were reported, and it may have been the last who was not.
    """
    times = np.full(len(groups), np.nan)
    for number, group in enumerate(groups):
        if group.transfer > 0:
            times[number] = np.log(group.transfer)
    return times


def likes(groups: Sequence[Group]) -> Ints:
    """By communicator, the number of those that move as much among as many; -1: not known how much."""
    known: dict[tuple[str, int, int], int] = {}
    numbers = [
        known.setdefault((one.kind, len(one.members), one.bytes), len(known)) if one.bytes else -1
        for one in groups
    ]
    return np.asarray(numbers, dtype=np.int64)


def slow_transfers(times: Floats, like: Ints) -> Floats:
    """By communicator, beyond those alike where there are four of them."""
    residual = np.full(len(times), np.nan)
    for number in np.unique(like[like >= 0]):
        same = like == number
        if (~np.isnan(times[same])).sum() >= _ENOUGH:
            residual[same] = times[same] - others_median(times[same])
    return residual
