"""Measures how often the analysis of Experiments is wrong, on synthetic data whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from convoy_crds.experiment import ExperimentSpec
from convoy_crds.experiment_plan import Direction
from convoy_crds.experiment_status import Verdict
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.experiments.analysis import Family, analyse
from convoy_workloads.experiments.controls import NEGATIVE_ALPHA
from convoy_workloads.experiments.holm import holm
from convoy_workloads.experiments.hypotheses import hypotheses
from convoy_workloads.experiments.intervals import mean_interval
from convoy_workloads.experiments.permutation import sign_flip
from convoy_workloads.experiments.power import standardised_minimum_effect
from convoy_workloads.experiments.verdicts import decide
from e2e.bench.experiments import synthetic
from e2e.bench.experiments.synthetic import DRAWS, Draw

REPEATS = 4000
FEW_REPEATS = 1000
"""Repeats of rows that run the whole analysis."""
ALPHA, POWER, TOLERANCE = 0.05, 0.8, 0.05
_ERRORS = 3.0
"""Standard errors that a rate may lie beyond its limit. The probability of more is 0.1 %."""
_SEED = 33


@dataclass(frozen=True)
class Change:
    """Numbers that are added to the values of the control arms, and to `offered` in one run."""

    same: float = 0.0
    bad: float = -6.0
    offered: float = 0.0


@dataclass(frozen=True)
class Limit:
    """A limit of a share."""

    share: float
    lower: bool = False
    """True if the share must not be below the limit; False if it must not be above."""
    exact: bool = False
    """True if the limit leaves no room for the random error of the measurement."""


def most(share: float, exact: bool = False) -> Limit:
    """Return an upper limit."""
    return Limit(share, exact=exact)


def least(share: float, exact: bool = False) -> Limit:
    """Return a lower limit."""
    return Limit(share, lower=True, exact=exact)


def calibration(found: Figures) -> None:
    """Add the rows of the part."""
    random = np.random.default_rng(_SEED)
    for name, draw in DRAWS.items():
        _same_arms(found, name, draw, random)
    _family(found, random)
    _boundary(found, random)
    for blocks, family in ((6, 1), (10, 1), (10, 10), (20, 10)):
        _power(found, blocks, family, random)
    for name, draw in DRAWS.items():
        _coverage(found, name, draw, random)
    _controls(found, random)


def verdicts(document: Mapping[str, Any], differences: np.ndarray) -> list[list[Verdict]]:
    """Return the verdicts of many experiments with the same plan. `differences`: by experiment, hypothesis
    and block.
    """
    spec = ExperimentSpec.model_validate(document["spec"])
    tested = hypotheses(spec)
    family = Family(spec, len(tested))
    raw = np.empty(differences.shape[:2])
    for number, one in enumerate(tested):
        shifted = differences[:, number] - one.threshold
        if one.one_sided:
            sides = [sign_flip(shifted, side, spec.analysis.resamples, _SEED) for side in ("greater", "less")]
            raw[:, number] = np.minimum(*sides)
        else:
            raw[:, number] = sign_flip(shifted, "two-sided", spec.analysis.resamples, _SEED)
    found = []
    for of_one, values in zip(raw, differences, strict=True):
        adjusted = holm([float(one) for one in of_one])
        row = []
        for one, p, series in zip(tested, adjusted, values, strict=True):
            if p <= ALPHA:
                row.append(decide(one, family.estimate(one, series.tolist(), p), ALPHA, ""))
            else:
                row.append(Verdict.UNDECIDED)  # The interval, which takes longer, could not change this.
        found.append(row)
    return found


def _decided(rows: Sequence[Sequence[Verdict]]) -> int:
    return sum(any(one is not Verdict.UNDECIDED for one in row) for row in rows)


def _same_arms(found: Figures, name: str, draw: Draw, random: np.random.Generator) -> None:
    """Add the rate at which two equal arms get a verdict. With 10 blocks, the largest p-value that is not
    above 5 % is 4.88 %.
    """
    differences = draw(random, (REPEATS, 1, 10)) - draw(random, (REPEATS, 1, 10))
    wrong = _decided(verdicts(synthetic.plan(10), differences))
    title = f"equal arms, {name}, 10 blocks: share with a verdict"
    _add_rate(found, title, wrong, REPEATS, most(ALPHA))
    if name != "ties":
        _add_rate(found, f"{title}, not too rare", wrong, REPEATS, least(50 / 1024))


def _family(found: Figures, random: np.random.Generator) -> None:
    """Add the rates of at least one wrong verdict in ten predictions about equal arms."""
    document = synthetic.plan(10, predictions=10)
    alone = random.standard_normal((REPEATS, 10, 10))
    shared = 0.3 * alone + random.standard_normal((REPEATS, 1, 10))
    for name, differences in (("independent", alone), ("correlated", shared)):
        wrong = _decided(verdicts(document, differences))
        title = f"family of 10 predictions, {name}: share with any wrong verdict"
        _add_rate(found, title, wrong, REPEATS, most(ALPHA))


def _boundary(found: Figures, random: np.random.Generator) -> None:
    """Add the rate of wrong verdicts where ten arms are exactly the margin worse: *not worse* is right."""
    document = synthetic.plan(10, predictions=10, direction=Direction.NOT_WORSE, margin=1.0)
    rows = verdicts(document, random.standard_normal((REPEATS, 10, 10)) - 1.0)
    wrong = sum(Verdict.CONTRADICTED in row for row in rows)
    title = "family of 10 NotWorse, exactly the margin worse: share with any Contradicted"
    _add_rate(found, title, wrong, REPEATS, most(ALPHA))
    rows = verdicts(document, random.standard_normal((REPEATS, 10, 10)) - 1.2)
    wrong = sum(Verdict.SUPPORTED in row for row in rows)
    title = "family of 10 NotWorse, more than the margin worse: share with any Supported"
    _add_rate(found, title, wrong, REPEATS, most(ALPHA))


def _power(found: Figures, blocks: int, family: int, random: np.random.Generator) -> None:
    """Add the share of experiments that find the announced minimum effect."""
    effect = standardised_minimum_effect(blocks, ALPHA / family, POWER, one_sided=False)
    if effect is None:
        raise ValueError(f"{blocks} blocks can decide no family of {family}")
    differences = random.standard_normal((REPEATS // 2, family, blocks))
    differences[:, 0] += effect
    rows = verdicts(synthetic.plan(blocks, predictions=family), differences)
    hits = sum(row[0] is Verdict.SUPPORTED for row in rows)
    title = f"announced minimum effect, {blocks} blocks, family of {family}"
    _add_rate(found, f"{title}: share found", hits, REPEATS // 2, least(POWER - TOLERANCE, exact=True))
    _add_rate(
        found, f"{title}: share found, not too often", hits, REPEATS // 2, most(POWER + TOLERANCE, exact=True)
    )


def _coverage(found: Figures, name: str, draw: Draw, random: np.random.Generator) -> None:
    """Add the share of intervals that contain the true difference of two equal arms."""
    hits = 0
    for number in range(REPEATS // 2):
        series = draw(random, (10,)) - draw(random, (10,))
        low, high = mean_interval(series.tolist(), 1 - ALPHA, 2000, number) or (math.nan, math.nan)
        hits += low <= 0 <= high
    title = f"95 % interval, {name}, 10 blocks: share that contains the truth"
    _add_rate(found, title, hits, REPEATS // 2, least(0.93))


def _controls(found: Figures, random: np.random.Generator) -> None:
    same = {"name": "same", "type": "Simulation", "role": "NegativeControl", "controlOf": "theirs"}
    bad = {
        "name": "bad",
        "type": "Simulation",
        "role": "PositiveControl",
        "controlOf": "theirs",
        "simulation": {"simulator": "recovery"},
    }
    document = synthetic.plan(10, predictions=3, controls=[same, bad])
    few = FEW_REPEATS // 4

    def rate(name: str, repeats: int, change: Change, limit: Limit) -> None:
        count = _invalid(document, repeats, change, random)
        _add_rate(found, f"{name}: share Invalid", count, repeats, limit)

    rate("controls as they should be", FEW_REPEATS, Change(), most(NEGATIVE_ALPHA))
    rate("an outcome that must be equal differs in one run", few, Change(offered=1e-6), least(1))
    rate("the negative control differs by 6 standard deviations", few, Change(same=6.0), least(1))
    rate("the positive control makes no difference", FEW_REPEATS, Change(bad=0.0), least(1 - ALPHA))
    rate("the positive control is better", few, Change(bad=1.0), least(1))


def _invalid(document: dict[str, Any], repeats: int, change: Change, random: np.random.Generator) -> int:
    """Return the number of invalid experiments among `repeats`."""
    count = 0
    for _ in range(repeats):
        values = random.standard_normal((10, 4, 4))
        values[:, :, 3] = 100.0
        values[:, 2, :3] += change.same
        values[:, 3, :3] += change.bad
        values[random.integers(10), random.integers(4), 3] += change.offered
        count += not analyse(document, synthetic.blocks(document, values)).valid
    return count


def _add_rate(found: Figures, name: str, hits: int, repeats: int, limit: Limit) -> None:
    """Add a share with its 95 % interval. A limit is widened by the random error of a true share of that
    size, unless it is exact.
    """
    error = 0.0 if limit.exact else _ERRORS * math.sqrt(limit.share * (1 - limit.share) / repeats)
    target = limit.share - error if limit.lower else limit.share + error
    interval = stats.binomtest(hits, repeats).proportion_ci(0.95, "wilson")
    metric = Metric(
        name,
        "share",
        round(target, 4),
        kind="simulated",
        higher_is_better=limit.lower,
        spread=f"95 % interval {interval.low:.3f} to {interval.high:.3f}, {repeats} experiments",
    )
    found.add(metric, hits / repeats)
