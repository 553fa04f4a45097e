"""Explores a design space: runs each combination of some parameters, and finds the sizes at which one
algorithm becomes faster than another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from convoy_controllers.astrasim.loadstore import analytical
from convoy_controllers.astrasim.loadstore.limits import EVENTS, check, events, plays_events
from convoy_controllers.astrasim.loadstore.parameters import Algorithm, Setup
from convoy_controllers.astrasim.loadstore.run import Outcome, run
from convoy_controllers.astrasim.parsing.fields import InvalidInput

MOST_POINTS = 4096
STEPS = 16
"""Sizes that the search for a crossover tries."""
FINE = 256
"""The search ends where the interval is this part of the size, or a line."""

Value = Any
Apply = Callable[[Setup, Value], Setup]


def _of_gpu(name: str) -> Apply:
    return lambda setup, value: replace(setup, gpu=replace(setup.gpu, **{name: value}))


def _of_links(name: str) -> Apply:
    return lambda setup, value: replace(setup, links=replace(setup.links, **{name: value}))


def _of_setup(name: str) -> Apply:
    return lambda setup, value: replace(setup, **{name: value})


AXES: Mapping[str, Apply] = {
    "gpus": _of_links("gpus"),
    "bytesPerNs": _of_links("bandwidth"),
    "latencyNs": _of_links("latency"),
    "workgroups": _of_gpu("workgroups"),
    "outstanding": _of_gpu("outstanding"),
    "access": _of_setup("access"),
    "bytes": _of_setup("size"),
    "algorithm": _of_setup("algorithm"),
}
"""Parameters that a sweep may vary, in the order of the points: the last one varies fastest."""
SIZE, ALGORITHM = "bytes", "algorithm"


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep."""

    values: Mapping[str, Value]
    """Value of each axis."""
    setup: Setup
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Crossover:
    """The size at which one algorithm becomes faster than another."""

    values: Mapping[str, Value]
    """Value of each axis but size and algorithm."""
    slower: Algorithm
    """The faster one below the size, and the slower one above."""
    faster: Algorithm
    size: int
    closed_form: int | None
    """The same size by the closed form; None if the closed form has none among the sizes of the sweep."""

    @property
    def error(self) -> float | None:
        """Return the difference of the two sizes, as a share of `size`."""
        return None if self.closed_form is None else self.closed_form / self.size - 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of a sweep."""

    axes: tuple[str, ...]
    points: tuple[Point, ...]
    crossovers: tuple[Crossover, ...]
    events: int
    """Events played, those of the search for crossovers included."""


def sweep(setup: Setup, axes: Mapping[str, tuple[Value, ...]], budget: int = EVENTS) -> Sweep:
    """Run every combination of the values of `axes`, each of which is one of AXES.

    Raises InvalidInput for an invalid value, or if the points need more than `budget` events. The search for
    crossovers takes what is left of the budget, and interpolates where that is not enough.
    """
    _check_axes(axes)
    names = tuple(name for name in AXES if name in axes)
    setups = [(values, _applied(setup, values)) for values in _combinations(names, axes)]
    _check_events(setups, budget)
    points = tuple(Point(values, one, run(one, budget)) for values, one in setups)
    search = _Search(budget - sum(one.outcome.events for one in points))
    crossovers = tuple(search.crossovers(points))
    return Sweep(names, points, crossovers, budget - search.left)


def _check_axes(axes: Mapping[str, tuple[Value, ...]]) -> None:
    count = 1
    for name, values in axes.items():
        if name not in AXES:
            raise InvalidInput(f"sweep.{name}", f"there is no such axis: use one of {', '.join(AXES)}")
        if not values or len(set(values)) < len(values):
            raise InvalidInput(f"sweep.{name}", "needs at least one value, and each one once")
        count *= len(values)
    if count > MOST_POINTS:
        raise InvalidInput("sweep", f"has {count} points, more than {MOST_POINTS}: use fewer values")


def _combinations(
    names: tuple[str, ...], axes: Mapping[str, tuple[Value, ...]]
) -> Iterator[Mapping[str, Value]]:
    for values in itertools.product(*(_ordered(axes[name]) for name in names)):
        yield dict(zip(names, values, strict=True))


def _ordered(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return numbers in ascending order, and names as they are."""
    return values if any(isinstance(one, str) for one in values) else tuple(sorted(values))


def _applied(setup: Setup, values: Mapping[str, Value]) -> Setup:
    """Return the setup with the values of a point. Raises InvalidInput if they are invalid."""
    for name, value in values.items():
        setup = AXES[name](setup, value)
    try:
        check(setup)
    except InvalidInput as error:
        where = ", ".join(f"{name} {value}" for name, value in values.items())
        raise InvalidInput("sweep", f"the point {where} is invalid: {error}") from error
    return setup


def _check_events(setups: list[tuple[Mapping[str, Value], Setup]], budget: int) -> None:
    """Raise InvalidInput if the points need more events than the budget. Runs at the seam count once."""
    played = {
        one if plays_events(one, False) else replace(one, size=one.seam): events(one, False)
        for _, one in setups
    }
    if (needed := sum(played.values())) > budget:
        raise InvalidInput(
            "sweep",
            f"the points need about {needed:,} events, more than {budget:,}: use fewer values, fewer bytes, "
            "or the mode hybrid with a smaller seamBytes; or raise the limit of events",
        )


class _Search:
    """Finds crossovers with a budget of events."""

    def __init__(self, left: int) -> None:
        self.left = left

    def crossovers(self, points: tuple[Point, ...]) -> Iterator[Crossover]:
        """Yield the crossovers of each pair of algorithms, in each configuration."""
        series: dict[tuple[Value, ...], dict[Algorithm, list[Point]]] = {}
        for one in points:
            other = tuple(value for name, value in one.values.items() if name not in {SIZE, ALGORITHM})
            series.setdefault(other, {}).setdefault(one.setup.algorithm, []).append(one)
        for of_algorithm in series.values():
            for first, second in itertools.combinations(of_algorithm.values(), 2):
                pairs = list(zip(first, second, strict=True))
                for below, above in itertools.pairwise(pairs):
                    yield from self._between(below, above)

    def _between(self, below: tuple[Point, Point], above: tuple[Point, Point]) -> Iterator[Crossover]:
        """Yield the crossover between two neighbouring sizes, if there is one."""
        low, high = _difference(below), _difference(above)
        if (low < 0) == (high < 0):
            return
        faster, slower = (above[0], above[1]) if high < 0 else (above[1], above[0])
        values = {name: value for name, value in above[0].values.items() if name not in {SIZE, ALGORITHM}}
        setups = (above[0].setup, above[1].setup)
        ends = (below[0].setup.size, low), (above[0].setup.size, high)
        size = self._refine(setups, *ends, self._measured)
        closed = _closed_form(setups, *(end for end, _ in ends))
        yield Crossover(values, slower.setup.algorithm, faster.setup.algorithm, size, closed)

    def _refine(
        self,
        setups: tuple[Setup, Setup],
        below: tuple[int, Fraction],
        above: tuple[int, Fraction],
        difference: Callable[[tuple[Setup, Setup], int], Fraction | None],
    ) -> int:
        """Return the size at which the difference changes its sign: by interpolation, and by halves in
        every second step.
        """
        for step in range(STEPS):
            if above[0] - below[0] <= max(above[0] // FINE, 1):
                break
            size = (below[0] + above[0]) // 2 if step % 2 else _interpolated(below, above)
            size = min(max(size, below[0] + 1), above[0] - 1)
            found = difference(setups, size)
            if found is None:
                break
            if (found < 0) == (below[1] < 0):
                below = size, found
            else:
                above = size, found
        return _interpolated(below, above)

    def _measured(self, setups: tuple[Setup, Setup], size: int) -> Fraction | None:
        """Return the difference of the times of two runs, or None if the budget does not allow them."""
        sized = [replace(one, size=size) for one in setups]
        if sum(events(one, False) for one in sized) > self.left:
            return None
        first, second = (run(one, self.left) for one in sized)
        self.left -= first.events + second.events
        return first.time - second.time


def _difference(points: tuple[Point, Point]) -> Fraction:
    return points[0].outcome.time - points[1].outcome.time


def _interpolated(below: tuple[int, Fraction], above: tuple[int, Fraction]) -> int:
    share = below[1] / (below[1] - above[1]) if below[1] != above[1] else Fraction(1, 2)
    return round(below[0] + share * (above[0] - below[0]))


def _closed_form(setups: tuple[Setup, Setup], low: int, high: int) -> int | None:
    """Return the crossover by the closed form, next to the interval in which the runs have it."""

    def difference(size: int) -> Fraction:
        first, second = (analytical.time(replace(one, size=size)) for one in setups)
        return first - second

    # The closed form may cross a little outside of the interval.
    below, above = max(1, low // 2), 2 * high
    sign = difference(below) < 0
    if sign == (difference(above) < 0):
        return None
    while above - below > 1:
        middle = (below + above) // 2
        if (difference(middle) < 0) == sign:
            below = middle
        else:
            above = middle
    return above
