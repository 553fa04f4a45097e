"""`make bench-scale`: measures the control plane with a thousand workers, and the seconds until they run."""

from __future__ import annotations

import asyncio
import itertools
import math
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.rig.jobs import HUNDRED, ONE_LARGE
from e2e.bench.rig.rig import Rig, running_rig
from e2e.bench.scale.jobset import LIMITS, JobSet
from e2e.bench.scale.scenarios import ROLLOUTS, SCENARIOS
from e2e.bench.scale.scenarios.common import CAPPED, UNCAPPED
from e2e.cluster.progress import Progress

NAME, COMMAND = "scale", "make bench-scale"
BASELINE = "baseline"
# The baseline comes directly after Convoy's rollouts, so that the machine's other load is about the same.
_ROLLOUTS = tuple(map(str, ROLLOUTS))
ALL = (*_ROLLOUTS, BASELINE, *(name for name in SCENARIOS if name not in (*_ROLLOUTS, "serving")))
"""The scenarios of `make bench-scale`. The scenario of ServingJobs belongs to `make bench-serving`."""
RATES = {"uncapped": UNCAPPED, "100": CAPPED}
# Scenarios with faults or long measurements run only with the chart's own rate limit.
_ONE_RATE = frozenset({"kill", "nodes", "steady", "serving", "everything", "everything-steady"})
# Scenarios that take minutes are repeated less often.
_MAX_REPEATS = {"nodes": 3, "steady": 1, "serving": 1, "everything-steady": 1}
# Maximum number of processors that other programs may use during a measurement.
_UNDISTURBED_CORES = 0.3
_MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Options:
    """The parts of the bench to run, and how often."""

    scenarios: Collection[str] = ALL
    rates: Collection[str] = tuple(RATES)
    repeats: int = 5
    nodes: int = 100
    patience: float = 0.0
    """Maximum seconds to wait, before each measurement, until other programs leave the machine quiet."""


@dataclass(frozen=True)
class Step:
    """One measurement and its title."""

    title: str
    run: Callable[[Figures], Awaitable[None]]


def bench(options: Options, figures: Figures) -> None:
    """Run the bench. On SIGTERM or SIGINT, remove the rig and raise asyncio.CancelledError."""
    asyncio.run(_bench(options, figures, Progress()))


async def _bench(options: Options, figures: Figures, progress: Progress) -> None:
    task = asyncio.current_task()

    def cancel(number: signal.Signals) -> None:
        progress.report(f"{number.name}: removing the rig")
        if task is not None:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, cancel, number)
    async with running_rig(options.nodes, progress, options.patience) as rig:
        baseline = JobSet(rig, progress)
        if BASELINE in options.scenarios:
            await baseline.install()
        for repeat in range(options.repeats):
            for step in _steps(rig, baseline, options, repeat):
                await _attempt(rig, step, f"repeat {repeat + 1}: {step.title}", options.patience, figures)


def _steps(rig: Rig, baseline: JobSet, options: Options, repeat: int) -> Iterator[Step]:
    """Yield the measurements of one repeat."""
    for name in (*ALL, "serving"):
        if name not in options.scenarios or repeat >= _MAX_REPEATS.get(name, options.repeats):
            continue
        if name == BASELINE:
            for limits, shape in itertools.product(LIMITS, (ONE_LARGE, HUNDRED)):
                yield Step(f"JobSet {shape}, {limits.title}", partial(baseline.measure, limits, shape))
        else:
            for rate in (CAPPED,) if name in _ONE_RATE else [RATES[label] for label in options.rates]:
                yield Step(f"{name}, {rate.title}", partial(SCENARIOS[name], rig, rate))


async def _attempt(rig: Rig, step: Step, title: str, patience: float, figures: Figures) -> None:
    """Run a measurement. If other programs disturbed it and `patience` is set, run it again.

    Only the figures of the least disturbed attempt are added. A measurement that fails adds no
    figures, and the bench goes on.
    """
    best, least_disturbance = Figures(), math.inf
    for _ in range(_MAX_ATTEMPTS if patience else 1):
        rig.report(title)
        rig.disturbance, trial = 0.0, Figures()
        try:
            await step.run(trial)
        except Exception as error:
            rig.report(f"{title} failed: {error!r}")
            await rig.clear()
        if rig.disturbance < least_disturbance:
            best, least_disturbance = trial, rig.disturbance
        if least_disturbance <= _UNDISTURBED_CORES:
            break
        rig.report(f"{title}: other programs used {rig.disturbance:.1f} processors meanwhile")
    figures.merge(best)
    figures.add(Metric("all steps: processors that others used meanwhile", "cores"), least_disturbance)
