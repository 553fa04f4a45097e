"""The samples of one rank: reading them, the quarantine, and the batches of the planned steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from convoy_workloads.data.alignment import Alignment
from convoy_workloads.data.intake import Accepted, Intake, Quarantined
from convoy_workloads.data.quarantine import Quarantine
from convoy_workloads.data.sample_stream import Source
from convoy_workloads.runtime.errors import DataError


class OwnSamples:
    """The samples that a rank has read and not used yet.

    `fill` and `collate` return the errors of a dataset and of a collate function, because the other ranks
    must know of them before this rank raises them.
    """

    def __init__(
        self, source: Source, intake: Intake, collate: Callable[[list[Any]], Any], quarantine: Quarantine
    ) -> None:
        self._source, self._intake, self._collate = source, intake, collate
        self._quarantine = quarantine
        self._filler: Any = None
        self.start(iter(()))

    def start(self, samples: Iterator[tuple[int, Any]]) -> None:
        """Drop all samples, and read these from now on. `samples`: numbers and values."""
        self._samples = samples
        self._values: dict[int, Any] = {}
        self._batches: deque[Any] = deque()

    def fill(self, alignment: Alignment) -> Exception | None:
        """Read samples until the pool of the alignment has enough."""
        try:
            while alignment.wants_sample:
                self._read_one(alignment)
        except Exception as error:
            return error
        return None

    def _read_one(self, alignment: Alignment) -> None:
        try:
            number, value = next(self._samples)
        except StopIteration:
            alignment.drain()
            return
        accepted = self._intake.accept(number, value)
        if isinstance(accepted, Quarantined):
            self._quarantine.add(accepted)
            alignment.skip()
            return
        self._values[number] = accepted.value
        alignment.add(number, accepted.length, accepted.weight)

    def restore(self, samples: Iterable[tuple[int, Any]], planned: int, alignment: Alignment) -> None:
        """Read the samples of a checkpoint again: first those of the planned steps, then the pool.

        Raises DataError if a sample is no longer usable.
        """
        for place, (number, value) in enumerate(samples):
            accepted = self._intake.accept(number, value)
            if isinstance(accepted, Quarantined):
                raise DataError(
                    f"sample {number} was usable before the restart, but is {accepted.reason} now"
                )
            self._values[number] = accepted.value
            alignment.restore_sample(number, accepted.length, accepted.weight, place < planned)

    def collate(self, steps: Iterable[tuple[int, ...]]) -> Exception | None:
        """Make the batches of the planned steps. A step without samples gets a filler."""
        try:
            for step in steps:
                values = [self._values.pop(one) for one in step]
                # Keep one sample for fillers. A short one is cheap.
                self._filler = values[-1] if values else self._filler
                self._batches.append(self._collate(values or [self._filler_sample()]))
        except Exception as error:
            return error
        return None

    def next_batch(self) -> Any:
        """Return the batch of the next step."""
        return self._batches.popleft()

    def _filler_sample(self) -> Any:
        """Return a sample for a batch that counts nothing. A rank that had no sample reads the first usable
        one of the dataset.
        """
        if self._filler is None:
            order = range(self._source.count)
            for number, value in zip(order, self._source.read(order, ahead=1, seed=0), strict=False):
                accepted = self._intake.accept(number, value)
                if isinstance(accepted, Accepted):
                    self._filler = accepted.value
                    break
            else:
                raise DataError("no sample of the dataset can be read again for a filler")
        return self._filler
