"""The cost of a batch, T(b) = alpha + beta b seconds, fitted to the measured times. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

MEMORY = 0.98
"""Factor by which the influence of a measurement falls with each later one, so that the fit follows a machine
that becomes slower.
"""
OUTLIER = 4.0
"""Maximum influence of a measurement, as a multiple of the fit, because a pause of the machine is no cost of
a batch.
"""
CONFIDENT = 8
"""Number of measurements after which outliers are limited."""
SMALLEST = 1e-6
"""Minimum cost in seconds, so that no request is free."""


@dataclass(slots=True)
class Fit:
    """Weighted sums of the measurements of one key."""

    count: int = 0
    weight: float = 0.0
    size: float = 0.0
    size_squared: float = 0.0
    seconds: float = 0.0
    size_seconds: float = 0.0

    def observe(self, size: int, seconds: float) -> None:
        """Add a measurement."""
        self.count += 1
        self.weight = self.weight * MEMORY + 1
        self.size = self.size * MEMORY + size
        self.size_squared = self.size_squared * MEMORY + size * size
        self.seconds = self.seconds * MEMORY + seconds
        self.size_seconds = self.size_seconds * MEMORY + size * seconds

    def line(self) -> tuple[float, float]:
        """Return alpha and beta. Both are at least 0, so T(b) / b does not grow with b."""
        spread = self.weight * self.size_squared - self.size * self.size
        if spread <= 1e-9 * self.weight * self.size_squared:
            return 0.0, self.seconds / self.size
        beta = (self.weight * self.size_seconds - self.size * self.seconds) / spread
        alpha = (self.seconds - beta * self.size) / self.weight
        if beta < 0:
            return self.seconds / self.weight, 0.0
        if alpha < 0:
            return 0.0, self.size_seconds / self.size_squared
        return alpha, beta


class CostModel:
    """The fits of all keys."""

    def __init__(self) -> None:
        self._fits: dict[Hashable, Fit] = {}

    def observe(self, key: Hashable, size: int, seconds: float) -> None:
        """Record that a batch of `size` items took `seconds`."""
        fit = self._fits.setdefault(key, Fit())
        if fit.count >= CONFIDENT:
            seconds = min(seconds, OUTLIER * self.cost(key, size))
        fit.observe(size, seconds)

    def cost(self, key: Hashable, size: int) -> float:
        """Return the seconds of a batch. A key without measurements costs the mean of the other keys."""
        fit = self._fits.get(key)
        if fit is not None:
            alpha, beta = fit.line()
            return max(SMALLEST, alpha + beta * size)
        if not self._fits:
            return float(size)
        return sum(self.cost(known, size) for known in self._fits) / len(self._fits)
