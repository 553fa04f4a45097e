"""The observed values of an Experiment's runs, by condition, repetition, arm and outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from convoy_crds.experiment_schedule import Cell
from convoy_crds.experiment_status import MAX_VALUE, BlockStatus


@dataclass(frozen=True, slots=True)
class Observed:
    """The value of one outcome in one run."""

    value: float
    censored: bool = False
    """True if the run ended before the value's event. The value is then the limit of the outcome."""


class Observations:
    """All observed values. A value that is not finite, or beyond MAX_VALUE, counts as not observed."""

    def __init__(self, blocks: Iterable[BlockStatus]) -> None:
        self._values: dict[tuple[Cell, int, str, str], Observed] = {}
        self._repetitions: dict[Cell, dict[int, None]] = {}
        self._achieved: dict[tuple[Cell, int, str], float] = {}
        for block in sorted(blocks, key=lambda one: (one.repetition, one.id)):
            cell = Cell(block.perturbation, block.magnitude)
            self._repetitions.setdefault(cell, {})[block.repetition] = None
            for measured in block.achieved:
                self._achieved[cell, block.repetition, measured.arm] = measured.magnitude
            for one in block.figures:
                if abs(one.value) <= MAX_VALUE:
                    key = (cell, block.repetition, one.arm, one.outcome)
                    # -0.0 becomes 0.0, as in the canonical JSON of the data.
                    self._values[key] = Observed(one.value + 0.0, bool(one.censored))

    def get(self, cell: Cell, repetition: int, arm: str, outcome: str) -> Observed | None:
        """Return a value; None if the run failed or did not take place."""
        return self._values.get((cell, repetition, arm, outcome))

    def achieved(self, cell: Cell, repetition: int, arm: str) -> float | None:
        """Return the measured magnitude of the perturbation in a run; None if it was not measured."""
        return self._achieved.get((cell, repetition, arm))

    def repetitions(self, cell: Cell) -> tuple[int, ...]:
        """Return the repetitions whose block under this condition has ended."""
        return tuple(self._repetitions.get(cell, ()))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return the conditions with at least one ended block."""
        return tuple(self._repetitions)

    def series(self, cell: Cell, arm: str, outcome: str) -> Iterator[Observed]:
        """Yield the values of an arm under a condition, in the order of the repetitions."""
        for repetition in self.repetitions(cell):
            if (found := self.get(cell, repetition, arm, outcome)) is not None:
                yield found
