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
from e2e.bench.rig.rig import Rig, rig
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
_AT_MOST = {"nodes": 3, "steady": 1, "everything-steady": 1}
# Processors that others may use during a measurement that is called undisturbed.
_DISTURBED = 0.3
_TRIES = 3


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

    words: str
    run: Callable[[Figures], Awaitable[None]]


def bench(options: Options, figures: Figures) -> None:
    """Runs it. SIGTERM and SIGINT end it, after everything is taken away, by asyncio.CancelledError."""
    asyncio.run(_bench(options, figures, Progress()))


async def _bench(options: Options, figures: Figures, progress: Progress) -> None:
    task = asyncio.current_task()

    def end(number: signal.Signals) -> None:
        progress.say(f"{number.name}: taking everything away")
        if task is not None:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    async with rig(options.nodes, progress, options.patience) as made:
        baseline = JobSet(made, progress)
        if BASELINE in options.scenarios:
            await baseline.install()
        for repeat in range(options.repeats):
            for step in _steps(made, baseline, options, repeat):
                await _attempt(made, step, f"repeat {repeat + 1}: {step.words}", options.patience, figures)


def _steps(made: Rig, baseline: JobSet, options: Options, repeat: int) -> Iterator[Step]:
    """Yield the steps of one repeat."""
    for name in ALL:
        if name not in options.scenarios or repeat >= _AT_MOST.get(name, options.repeats):
            continue
        if name == BASELINE:
            for limits, shape in itertools.product(LIMITS, (ONE_LARGE, HUNDRED)):
                yield Step(f"JobSet {shape}, {limits.words}", partial(baseline.measure, limits, shape))
        else:
            for rate in (CAPPED,) if name in _ONE_RATE else [RATES[label] for label in options.rates]:
                yield Step(f"{name}, {rate.words}", partial(SCENARIOS[name], made, rate))


async def _attempt(made: Rig, step: Step, words: str, patience: float, figures: Figures) -> None:
    """Measures once; again, if others used the machine meanwhile and there is patience for it.

    Of several attempts the one counts that was disturbed least, whatever came out. A step that breaks costs
    its own figures and no other's.
    """
    best, least = Figures(), math.inf
    for _ in range(_TRIES if patience else 1):
        made.say(words)
        made.disturbance, trial = 0.0, Figures()
        try:
            await step.run(trial)
        except Exception as error:
            made.say(f"{words} broke: {error!r}")
            await made.clear()
        if made.disturbance < least:
            best, least = trial, made.disturbance
        if least <= _DISTURBED:
            break
        made.say(f"{words}: others used {made.disturbance:.1f} processors meanwhile")
    figures.merge(best)
    figures.add(Metric("all steps: processors that others used meanwhile", "cores"), least)
