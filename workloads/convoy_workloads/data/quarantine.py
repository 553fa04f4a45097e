"""The list of the samples of all ranks that were not used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from convoy_workloads.data.agreement import Gathers
from convoy_workloads.data.intake import Quarantined, Reason

LISTED = 10_000
"""Maximum samples that are listed. All are counted."""
REASONS: tuple[Reason, ...] = get_args(Reason)


class Quarantine:
    """The samples that no rank uses, each once, with the reasons. The list is the same on all ranks, so that
    each rank's checkpoint has all of it.
    """

    def __init__(self, exchange: Gathers) -> None:
        self.samples: list[Quarantined] = []
        self._exchange = exchange
        self._numbers: set[int] = set()
        self._own: list[Quarantined] = []
        self._counts: list[int] = []

    def start(self, counts: Sequence[int]) -> None:
        """Start an epoch, or continue it, after the ranks have put this many samples into quarantine."""
        self._own, self._counts = [], list(counts)

    def add(self, one: Quarantined) -> None:
        """Add a sample of this rank. The next `share` lists it."""
        self._own.append(one)

    def share(self, counts: Sequence[int]) -> None:
        """List what all ranks have added. `counts`: samples of each rank in this epoch, as all ranks know
        them.
        """
        width = max(now - before for now, before in zip(counts, self._counts, strict=True))
        if not width:
            return
        width = min(width, LISTED)
        rows = [(one.sample, REASONS.index(one.reason), one.length) for one in self._own[:width]]
        rows += [(-1, 0, 0)] * (width - len(rows))
        for numbers in self._exchange.gather([value for row in rows for value in row]):
            for at in range(0, len(numbers), 3):
                if numbers[at] >= 0:
                    self._list(Quarantined(numbers[at], REASONS[numbers[at + 1]], numbers[at + 2]))
        self.start(counts)

    def _list(self, one: Quarantined) -> None:
        if one.sample not in self._numbers and len(self.samples) < LISTED:
            self._numbers.add(one.sample)
            self.samples.append(one)

    def restore(self, saved: Sequence[dict[str, Any]]) -> None:
        """Take back the list of a checkpoint."""
        self.samples, self._numbers = [], set()
        for one in saved:
            self._list(Quarantined(**one))
