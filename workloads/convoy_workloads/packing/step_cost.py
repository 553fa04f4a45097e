"""Models of a step's time t for a batch of B samples with S tokens each.

- Power law: t = k (B S^p). One exponent p stands for the mix of linear and quadratic work.
- Linear and quadratic: t = B (a S + q S^2) + c, with the linear layers a, attention q and a fixed cost c.

Both are fitted by least squares of the relative error, so that short steps count as much as long ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Timing:
    """A measured step."""

    batch: int
    tokens: int
    """Number of tokens of each sample, after padding."""
    seconds: float


class FitError(ValueError):
    """Raised if the timings cannot determine a model."""


class CostModel(Protocol):
    """A model of a step's time."""

    def seconds(self, batch: int, tokens: int) -> float:
        """Return the modelled seconds of a step."""
        ...


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """The model t = k B S^p."""

    scale: float
    exponent: float

    def seconds(self, batch: int, tokens: int) -> float:
        """Return the modelled seconds of a step."""
        return float(self.scale * batch * tokens**self.exponent)


@dataclass(frozen=True, slots=True)
class LinearQuadratic:
    """The model t = B (a S + q S^2) + c. No coefficient is negative."""

    linear: float
    quadratic: float
    fixed: float

    def seconds(self, batch: int, tokens: int) -> float:
        """Return the modelled seconds of a step."""
        return batch * (self.linear * tokens + self.quadratic * tokens**2) + self.fixed

    @property
    def overhead_tokens(self) -> int:
        """Number of tokens that take as long as the fixed cost of a step; 0 if no token takes time."""
        return round(self.fixed / self.linear) if self.linear else 0

    def local_exponent(self, tokens: int) -> float:
        """Return the exponent p of the power law that fits best around samples of this many tokens."""
        linear, quadratic = self.linear * tokens, self.quadratic * tokens**2
        return (linear + 2 * quadratic) / (linear + quadratic) if linear + quadratic else 1.0


def fit_power_law(timings: Iterable[Timing]) -> PowerLaw:
    """Fit a power law by regression of log(t / B) on log S.

    Raises FitError if the timings have fewer than two sizes of samples.
    """
    points = [(math.log(one.tokens), math.log(one.seconds / one.batch)) for one in _usable(timings)]
    if len({x for x, _ in points}) < 2:
        raise FitError("a power law needs timings of samples of two sizes or more")
    slope, constant = statistics.linear_regression(*zip(*points, strict=True))
    return PowerLaw(math.exp(constant), slope)


def fit_linear_quadratic(timings: Iterable[Timing]) -> LinearQuadratic:
    """Fit the linear and quadratic model. A coefficient that would be negative is 0.

    Raises FitError if the timings have fewer than three sizes of batches or samples.
    """
    rows = _usable(timings)
    if len({(one.batch, one.tokens) for one in rows}) < 3:
        raise FitError("the linear and quadratic model needs timings of three different sizes or more")
    terms = [(one.batch * one.tokens, one.batch * one.tokens**2, 1.0) for one in rows]
    # Divide each equation by the measured time: then the residuals are relative errors.
    scaled = [[term / one.seconds for term in row] for row, one in zip(terms, rows, strict=True)]
    best: tuple[float, tuple[float, ...]] | None = None
    for chosen in (subset for size in (1, 2, 3) for subset in combinations(range(3), size)):
        solved = _least_squares([[row[at] for at in chosen] for row in scaled])
        if solved is None or min(solved) < 0:
            continue
        values = [0.0, 0.0, 0.0]
        for at, value in zip(chosen, solved, strict=True):
            values[at] = value
        error = sum((_dot(row, values) - 1) ** 2 for row in scaled)
        if best is None or error < best[0]:
            best = error, tuple(values)
    if best is None:
        raise FitError("no model without negative coefficients fits the timings")
    return LinearQuadratic(*best[1])


def mape(model: CostModel, timings: Iterable[Timing]) -> float:
    """Return the mean absolute relative error of a model; 0 without timings."""
    errors = [abs(model.seconds(one.batch, one.tokens) / one.seconds - 1) for one in _usable(timings)]
    return statistics.fmean(errors) if errors else 0.0


@dataclass
class RunningTimings:
    """Smoothed times of the sizes that a training runs, for a fit that follows changes of the machine."""

    smoothing: float = 0.2
    """Weight of a size's newest time in its average (EMA)."""
    limit: int = 256
    """Maximum number of sizes. The size that was measured least recently makes room for another."""
    averages: dict[tuple[int, int], float] = field(default_factory=dict)

    def add(self, timing: Timing) -> None:
        """Include one more measured step."""
        size = timing.batch, timing.tokens
        before = self.averages.pop(size, timing.seconds)
        self.averages[size] = before + self.smoothing * (timing.seconds - before)
        if len(self.averages) > self.limit:
            del self.averages[next(iter(self.averages))]

    def timings(self) -> list[Timing]:
        """Return the averages."""
        return [Timing(*size, seconds) for size, seconds in self.averages.items()]

    def outdated(self, model: CostModel, tolerance: float = 0.15) -> bool:
        """Return True if the model's mean relative error exceeds `tolerance`, so that it must be refitted."""
        return mape(model, self.timings()) > tolerance


def _usable(timings: Iterable[Timing]) -> list[Timing]:
    """Return the timings that have a positive size and a positive finite time."""
    return [
        one
        for one in timings
        if one.batch > 0 and one.tokens > 0 and one.seconds > 0 and math.isfinite(one.seconds)
    ]


def _least_squares(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the x that minimises |rows x - 1|; None if it is not unique. Uses the normal equations, with
    columns scaled to length 1.
    """
    columns = list(zip(*rows, strict=True))
    norms = [math.sqrt(sum(value * value for value in column)) for column in columns]
    if not all(norms):
        return None
    unit = [[value / norm for value in column] for column, norm in zip(columns, norms, strict=True)]
    matrix = [[_dot(one, other) for other in unit] + [sum(one)] for one in unit]
    for at in range(len(matrix)):
        pivot = max(range(at, len(matrix)), key=lambda row: abs(matrix[row][at]))
        if abs(matrix[pivot][at]) < 1e-12:
            return None
        matrix[at], matrix[pivot] = matrix[pivot], matrix[at]
        for row in range(len(matrix)):
            if row != at:
                factor = matrix[row][at] / matrix[at][at]
                matrix[row] = [x - factor * y for x, y in zip(matrix[row], matrix[at], strict=True)]
    return [row[-1] / row[at] / norms[at] for at, row in enumerate(matrix)]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))
