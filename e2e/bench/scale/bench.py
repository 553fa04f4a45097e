"""`make bench-scale`: what a thousand workers cost the control plane, and how soon they run."""

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
# Convoy's rollouts and the baseline's follow one another, so that both meet the same machine.
_ROLLOUTS = tuple(map(str, ROLLOUTS))
ALL = (*_ROLLOUTS, BASELINE, *(name for name in SCENARIOS if name not in _ROLLOUTS))
RATES = {"uncapped": UNCAPPED, "100": CAPPED}
# Faults and long looks meet the chart's own rate alone.
_ONE_RATE = frozenset({"kill", "nodes", "steady", "everything", "everything-steady"})
# Minutes each: fewer of them.
_MAX_REPEATS = {"nodes": 3, "steady": 1, "everything-steady": 1}
# Processors that others may use during a measurement that is called undisturbed.
_UNDISTURBED_CORES = 0.3
_MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Options:
    """Parts of the bench to run."""

    scenarios: Collection[str] = ALL
    rates: Collection[str] = tuple(RATES)
    repeats: int = 5
    nodes: int = 100
    patience: float = 0.0
    """Seconds to wait before each step for others to leave the machine alone."""


@dataclass(frozen=True)
class Step:
    """One thing to measure once."""

    title: str
    run: Callable[[Figures], Awaitable[None]]


def bench(options: Options, figures: Figures) -> None:
    """Runs it. SIGTERM and SIGINT end it, after everything is taken away, by asyncio.CancelledError."""
    asyncio.run(_bench(options, figures, Progress()))


async def _bench(options: Options, figures: Figures, progress: Progress) -> None:
    task = asyncio.current_task()

    def cancel(number: signal.Signals) -> None:
        progress.report(f"{number.name}: taking everything away")
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
    """Yield the steps of one repeat."""
    for name in ALL:
        if name not in options.scenarios or repeat >= _MAX_REPEATS.get(name, options.repeats):
            continue
        if name == BASELINE:
            for limits, shape in itertools.product(LIMITS, (ONE_LARGE, HUNDRED)):
                yield Step(f"JobSet {shape}, {limits.title}", partial(baseline.measure, limits, shape))
        else:
            for rate in (CAPPED,) if name in _ONE_RATE else [RATES[label] for label in options.rates]:
                yield Step(f"{name}, {rate.title}", partial(SCENARIOS[name], rig, rate))


async def _attempt(rig: Rig, step: Step, title: str, patience: float, figures: Figures) -> None:
    """Measures once; again, if others used the machine meanwhile and there is patience for it.

    Of several attempts the one counts that was disturbed least, whatever came out. A step that breaks costs
    its own figures and no other's.
    """
    best, least_disturbance = Figures(), math.inf
    for _ in range(_MAX_ATTEMPTS if patience else 1):
        rig.report(title)
        rig.disturbance, trial = 0.0, Figures()
        try:
            await step.run(trial)
        except Exception as error:
            rig.report(f"{title} broke: {error!r}")
            await rig.clear()
        if rig.disturbance < least_disturbance:
            best, least_disturbance = trial, rig.disturbance
        if least_disturbance <= _UNDISTURBED_CORES:
            break
        rig.report(f"{title}: others used {rig.disturbance:.1f} processors meanwhile")
    figures.merge(best)
    figures.add(Metric("all steps: processors that others used meanwhile", "cores"), least_disturbance)
