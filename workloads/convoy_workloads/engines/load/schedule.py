"""The schedule of a load with the parameters of a job, and the change of its rate. Pure."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from convoy.load.arrivals import MAX_RATE, Bursts, ScheduleError, Step, arrivals, parse_steps
from convoy.load.trace import Scale, scaled
from convoy_workloads.engines.load.params import Params
from convoy_workloads.simulators.perturbation import Perturbation

SECONDS = 10.0
"""Duration of a load without `seconds`, `steps` and `trace`."""
Schedule = Callable[[], Iterable[float]]


def schedule(params: Params) -> Schedule:
    """Return a picklable function that returns the times of all requests. Raises ScheduleError, with the
    parameter, for an invalid schedule.
    """
    shift = params.perturbation
    if params.trace is not None:
        replayed = partial(
            scaled, params.trace, Scale(params.speed, params.scale), params.seed, params.seconds
        )
        return replayed if shift is None else partial(_shifted_trace, replayed, shift, params.seed)
    steps = changed_steps(steps_of(params), shift)
    bursts = Bursts(params.burst_factor, params.burst_seconds, params.calm_seconds)
    return partial(arrivals, params.arrivals, steps, params.seed, bursts)


def steps_of(params: Params) -> tuple[Step, ...]:
    """Return the steps of the rate without the perturbation. Raises ScheduleError, with the parameter, for
    invalid steps.
    """
    if params.steps:
        return parse_steps(params.steps)
    return (Step(params.rate, params.seconds or SECONDS),)


def changed_steps(steps: Sequence[Step], shift: Perturbation | None) -> tuple[Step, ...]:
    """Return the steps with the rates that the perturbation changes. Raises ScheduleError if a rate becomes
    too high.
    """
    if shift is None:
        return tuple(steps)
    found, start = [], 0.0
    for step in steps:
        end = start + step.seconds
        edges = [start, *(at for at in (shift.start, shift.end) if start < at < end), end]
        for begin, until in itertools.pairwise(edges):
            rate = step.rate * (shift.magnitude if shift.active(begin) else 1)
            if rate > MAX_RATE:
                raise ScheduleError(f"perturbation.magnitude: {rate:g} requests per second are too many")
            found.append(Step(rate, until - begin))
        start = end
    return tuple(found)


def _shifted_trace(replayed: Schedule, shift: Perturbation, seed: int) -> Iterator[float]:
    """Yield the arrivals of a trace. While the perturbation acts, they are thinned out or repeated."""
    times = list(replayed())
    begin, end = (bisect.bisect_left(times, at) for at in (shift.start, shift.end))
    yield from times[:begin]
    if times[begin:end]:
        yield from scaled(times[begin:end], Scale(requests=shift.magnitude), seed)
    yield from times[end:]


def expected_requests(params: Params, start: float, end: float) -> float:
    """Return the number of requests from `start` to `end` that the load without the perturbation has on
    average.
    """
    if params.trace is not None:
        plain = schedule(params.model_copy(update={"perturbation": None}))
        return float(sum(start <= at < end for at in plain()))
    found, begin = 0.0, 0.0
    for step in steps_of(params):
        until = begin + step.seconds
        found += step.rate * max(0.0, min(until, end) - max(begin, start))
        begin = until
    return found
