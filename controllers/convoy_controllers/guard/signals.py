"""Signals of a table besides the ranks' compute times: input, host, communicators, and changes that affect
many ranks at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from convoy_controllers.guard.robust import group_medians, median, others_median, spread, zeroed
from convoy_controllers.guard.telemetry import Bools, Floats, Group, Ints, Table

_MEAN_WINDOWS = 32
"""Number of windows that an initial mean covers. Later windows do not change the mean."""
_OUTLIER_SIGMAS = 4.0
"""Number of standard deviations above the median at which a rank's time becomes an outlier."""
_ENOUGH_WINDOWS = 4
"""Minimum number of windows in an initial mean before values are compared with the mean."""
_ENOUGH_VALUES = 4
"""Minimum number of ranks, places or similar communicators for a comparison with one another."""


@dataclass(frozen=True, slots=True, eq=False)
class InitialMean:
    """The mean of each unit's values over its first windows. The mean then stays fixed."""

    mean: Floats
    count: Floats

    @classmethod
    def initial(cls, units: int) -> InitialMean:
        """Return the means of `units` units before the first window."""
        return cls(np.zeros(units), np.zeros(units))

    def rearranged(self, order: Ints) -> InitialMean:
        """Return the means for a new set of units.

        `order` gives each new unit's old number; -1 means that the unit is new.
        """
        mean, count = np.zeros(len(order)), np.zeros(len(order))
        mean[order >= 0], count[order >= 0] = self.mean[order[order >= 0]], self.count[order[order >= 0]]
        return replace(self, mean=mean, count=count)

    def shift(self, values: Floats) -> Floats:
        """Return the values minus their initial means; NaN while a mean covers less than `_ENOUGH_WINDOWS`
        windows.
        """
        return np.where(self.count >= _ENOUGH_WINDOWS, values - self.mean, np.nan)

    def learned(self, values: Floats, trusted: Bools) -> InitialMean:
        """Return the means updated with the `values` of one more window. A unit's mean is updated only if
        the mask `trusted` includes the unit, and only until the mean covers `_MEAN_WINDOWS` windows.
        """
        learns = ~np.isnan(values) & trusted & (self.count < _MEAN_WINDOWS)
        count = self.count + learns
        step = np.where(learns, values, self.mean) - self.mean
        return replace(self, mean=self.mean + step / np.maximum(count, 1), count=count)


def busy(table: Table) -> Floats:
    """Return by rank the seconds of compute and optimizer."""
    return np.maximum(table.compute + zeroed(table.optimizer), 1e-9)


def share(values: Floats, table: Table) -> Floats:
    """Return the logarithm of the factor by which `values` (seconds) prolong the median rank's compute and
    optimizer time.
    """
    return np.log1p(np.maximum(values, 0.0) / middle(busy(table)))


def against_all(values: Floats) -> Floats:
    """Return by rank its value minus the median of the other ranks."""
    return values - others_median(values)


def middle(values: Floats, lower: bool = False) -> Floats:
    """Return the median of the values that are not NaN, as an array of one; NaN if all values are NaN.
    `lower`: return the lower of two middle values instead of their mean.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return np.array([np.nan])
    return np.array([np.sort(known)[(len(known) - 1) // 2] if lower else median(known)])


def stepping(table: Table) -> Floats:
    """Return the duration of one step in seconds, without the waits for checkpoints. The result is the
    median over the ranks, as an array of one.
    """
    return middle(table.wall - table.save) / table.steps


def pauses(values: Floats) -> Floats:
    """Return the time above the outlier limit, summed over the outlier ranks, as an array of one.

    A pause of one rank delays all ranks. If a different rank pauses each time, no single rank's mean shows
    the pauses. The mean of all ranks shows only a small part of them.
    """
    known = values[~np.isnan(values)]
    if len(known) < _ENOUGH_VALUES:
        return np.array([np.nan])
    most = median(known) + _OUTLIER_SIGMAS * spread(known)
    return np.array([np.maximum(known - most, 0.0).sum()])


def transfer(table: Table) -> Floats:
    """Return the shortest time that any rank spent in collectives, as an array of one; NaN unless all ranks
    reported.

    The last rank to arrive at a collective does not wait, so its time is the transfer alone. In a window of
    several steps, a different rank may be last in each step. Even the shortest time then includes waits, so
    the result is an upper limit of the transfer time.
    """
    return np.array([table.wait.min()])


def against_other_racks(values: Floats, rack: Ints) -> Floats:
    """Return by rack its median minus the median of the other racks; NaN with fewer than four racks."""
    return _beyond(group_medians(values, rack))


def against_other_replicas(values: Floats, replica: Ints) -> Floats:
    """Return by replica the value of its fastest rank minus the median of the other replicas.

    The fastest rank counts because ALL ranks of a slow replica are slow. NaN with fewer than four replicas.
    """
    least = np.full(int(replica.max()) + 1, np.nan)
    np.fmin.at(least, replica, values)
    return _beyond(least)


def _beyond(values: Floats) -> Floats:
    return values - others_median(values) if len(values) >= _ENOUGH_VALUES else np.full(len(values), np.nan)


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values, and for each element the index of its value among them."""
    kinds, numbers = np.unique(values, return_inverse=True)
    return kinds, numbers.reshape(-1).astype(np.int64)


def transfers(groups: Sequence[Group]) -> Floats:
    """Return by communicator the logarithm of the seconds that the transfer took; NaN unless all members
    reported.

    The last member to arrive does not wait, so the shortest of the members' durations is the transfer
    alone. A member that did not report may have been the last one. The clocks of two machines are never
    compared.
    """
    times = np.full(len(groups), np.nan)
    for number, group in enumerate(groups):
        seconds = group.transfer
        if seconds > 0:
            times[number] = np.log(seconds)
    return times


def communicator_classes(groups: Sequence[Group]) -> Ints:
    """Return by communicator the number of its class: same kind, number of members and bytes; -1 if the
    bytes are unknown.
    """
    known: dict[tuple[str, int, int], int] = {}
    numbers = [
        known.setdefault((one.kind, len(one.members), one.bytes), len(known)) if one.bytes else -1
        for one in groups
    ]
    return np.asarray(numbers, dtype=np.int64)


def slow_transfers(times: Floats, like: Ints) -> Floats:
    """Return by communicator its time minus the median of the other communicators in its class. NaN if
    fewer than four communicators of the class have a time.
    """
    residual = np.full(len(times), np.nan)
    for number in np.unique(like[like >= 0]):
        same = np.nonzero(like == number)[0]
        own = times[same]
        if np.count_nonzero(~np.isnan(own)) >= _ENOUGH_VALUES:
            residual[same] = own - others_median(own)
    return residual
