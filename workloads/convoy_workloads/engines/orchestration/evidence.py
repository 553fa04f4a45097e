"""The evidence behind the claims: paired figures of an experiment's test windows, and their intervals.

All differences are oriented: above 0, the first arm is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from convoy_crds.experiment_plan import Better, Outcome, OutcomeSource
from convoy_crds.experiment_schedule import Cell
from convoy_crds.experiment_status import BlockStatus
from convoy_workloads.engines.orchestration.arms import BROKEN, LEARNED, SAME
from convoy_workloads.engines.orchestration.systems import System
from convoy_workloads.experiments.hypotheses import UNPERTURBED
from convoy_workloads.experiments.intervals import bootstrapped_ratio, mean_interval
from convoy_workloads.experiments.observations import Observations
from convoy_workloads.experiments.paired import arm_pairs
from convoy_workloads.experiments.result import Result

RESAMPLES = 50_000
"""Resamples of each interval. The widest family needs about 13,000."""
_SEED = 33


@dataclass(frozen=True, slots=True)
class Estimated:
    """A mean with its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def differs(self) -> bool:
        """Return True if the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Finished:
    """One experiment of the study with its result and its figures."""

    system: System
    kind: str
    result: Result
    blocks: Sequence[BlockStatus]
    observations: Observations

    @property
    def family_level(self) -> float:
        """Return the level of an interval that holds for all hypotheses of the experiment together
        (Bonferroni).
        """
        return 1 - self.result.alpha / max(1, len(self.result.hypotheses))

    def cells(self, magnitude: float | None, degradation: bool) -> list[Cell]:
        """Return the conditions that a contrast needs."""
        if magnitude is None:
            return [UNPERTURBED]
        found = next(one for one in self.observations.cells if one.magnitude == magnitude)
        return [UNPERTURBED, found] if degradation else [found]

    def differences(
        self, first: str, second: str, cells: Sequence[Cell], figure: str = ""
    ) -> tuple[float, ...]:
        """Return the differences of two arms, one for each window. With two `cells`, they are differences of
        degradations. `figure`: the primary one by default.
        """
        return arm_pairs(
            self.observations, _outcome(figure or self.system.primary), first, second, cells
        ).differences

    def lead(self, first: str, second: str, cells: Sequence[Cell], figure: str = "") -> Estimated | None:
        """Return how much better the first arm is, with an interval that holds for the whole family."""
        return estimated(self.differences(first, second, cells, figure), self.family_level)

    def is_unaffected(self, arm: str) -> bool:
        """Return True if the perturbation changes no run of an arm, as lag does with a controller that
        measures nothing. Such an arm cannot degrade, whatever its quality.
        """
        figure = self.system.primary
        series = [
            [one.value for one in self.observations.series(cell, arm, figure)]
            for cell in self.observations.cells
        ]
        return all(one == series[0] for one in series)

    def reached(self) -> list[tuple[float, float, float]]:
        """Return each magnitude with the least and the largest mean of what the arms have measured of it.
        Arms that measure nothing, and the controls, are left out.
        """
        found: dict[float, dict[str, list[float]]] = {}
        for block in self.blocks:
            for one in block.achieved or ():
                if block.magnitude is not None and one.arm not in (SAME, BROKEN):
                    found.setdefault(block.magnitude, {}).setdefault(one.arm, []).append(one.magnitude)
        means = {
            asked: [math.fsum(series) / len(series) for series in of_arms.values()]
            for asked, of_arms in found.items()
        }
        return [(asked, min(several), max(several)) for asked, several in sorted(means.items())]

    def loss_is_excluded(self, arm: str, magnitude: float, margin: float) -> bool:
        """Return True if the interval shows that the learned arm is at most `margin` worse than another arm
        under a perturbation. `margin`: a share of the other arm's figure.
        """
        found = arm_pairs(
            self.observations, _outcome(self.system.primary), LEARNED, arm, self.cells(magnitude, False)
        )
        room = [(1 + margin) * other - one for one, other in zip(found.first, found.second, strict=True)]
        interval = mean_interval(room, self.family_level, RESAMPLES, _SEED)
        return interval is not None and interval[0] > 0


def _outcome(figure: str) -> Outcome:
    """Return a figure as an outcome. Lower is better in all figures of the study."""
    return Outcome(name=figure, better=Better.LOWER, source=OutcomeSource(metric=figure))


def estimated(differences: Sequence[float], level: float) -> Estimated | None:
    """Return the mean of the differences with its interval; None for fewer than two."""
    interval = mean_interval(differences, level, RESAMPLES, _SEED)
    if interval is None:
        return None
    return Estimated(math.fsum(differences) / len(differences), *interval)


def share_left(part: Sequence[float], whole: Sequence[float], level: float) -> Estimated | None:
    """Return the ratio of two means of paired differences, with a BCa bootstrap interval over the windows.

    The caller must know that the mean of `whole` is above 0. Return None if no interval can be computed.
    """
    if len(whole) < 2 or math.fsum(whole) <= 0:
        return None
    interval = bootstrapped_ratio(part, whole, level, RESAMPLES, _SEED)
    return None if interval is None else Estimated(math.fsum(part) / math.fsum(whole), *interval)
