"""The part overhead: time of a step with the recorder on, off and absent, in one job.

Blocks of steps alternate in the same processes, so that all kinds meet the same machine. A block's value is
the median of its steps. The overhead of a kind is the median over the rounds of its ratio to the blocks
without a recorder in the same round. Processor time, that of all threads of the rank, shows
the same on a busy machine.

The cost of an operator does not depend on its size, so a second shape has larger operators.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Sequence
from pathlib import Path

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.traces.record import record
from e2e.bench.traces.operator_cost import operator_costs
from e2e.bench.traces.rank import NONE, OFF, ON, SLOWED, SLOWED_BY
from e2e.bench.traces.shape import Shape
from e2e.bench.traces.training import Run, run_training

SHAPES = (
    Shape(width=1024, depth=6, batch=256, bucket_mib=8),
    Shape(width=2048, depth=6, batch=256, bucket_mib=8),
)
ROUND = (NONE, ON, OFF, NONE, SLOWED, OFF, ON, NONE)
ROUNDS = 5
STEPS = 8
MAX_ON = 3.0
MAX_OFF = 0.01
"""Percent of a step. Off is one comparison."""
NOISE = 3.0
"""Percent by which blocks without a recorder may differ."""
CALLS = 20_000


def add(found: Figures) -> None:
    """Add the figures."""
    for shape in SHAPES:
        add_rows(found, run_training(shape, ROUND * ROUNDS, STEPS), shape)
    for cost in operator_costs():
        found.add(Metric("recorder on: processor time for an operator", "us"), cost)
        name = f"recorder on: least mean time of an operator at which a step takes {MAX_ON:g} % more"
        found.add(Metric(name, "us"), 100 * cost / MAX_ON)


def add_rows(found: Figures, run: Run, shape: Shape) -> None:
    """Add the figures of a job with rounds of blocks."""
    report, job = run.reports[0], f"width {shape.width}"
    wall, processor = _rounds(report.blocks), _rounds(report.processor)
    usual_name = f"time of a step without a recorder: gloo, {shape}"
    for value in (value for one in wall for value in _of(NONE, one)):
        found.add(Metric(usual_name, "ms"), 1e3 * value)
    for value in (value for one in wall for value in _of(ON, one)):
        found.add(Metric(f"{job}: time of a recorded step", "ms", baseline=usual_name), 1e3 * value)
    for what, rounds in (("time", wall), ("processor time", processor)):
        _ratios(found, f"{job}: recorder on: {what} of a step, more by", rounds, ON, MAX_ON)
        _ratios(found, f"{job}: recorder off: {what} of a step, more by", rounds, OFF, None)
        control = _control(rounds)
        name = f"{job}: negative control: {what}, no recorder against no recorder, more by"
        metric = Metric(name, "%", target=NOISE, spread=_spread(control))
        found.add(metric, abs(statistics.median(control)))
        slowed = _percents(rounds, SLOWED)
        name = f"{job}: negative control: {what}, steps made {100 * SLOWED_BY:g} % longer, more by"
        metric = Metric(name, "%", target=MAX_ON, higher_is_better=True, spread=_spread(slowed))
        found.add(metric, statistics.median(slowed))
    _off(found, job, statistics.median(_of(NONE, one)[0] for one in wall))
    _once(found, job, run)


def _rounds(blocks: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the median step of each block of each round."""
    medians = [statistics.median(block) for block in blocks]
    return [medians[first : first + len(ROUND)] for first in range(0, len(medians), len(ROUND))]


def _of(kind: str, one_round: Sequence[float]) -> list[float]:
    return [value for place, value in enumerate(one_round) if ROUND[place] == kind]


def _percents(rounds: Sequence[Sequence[float]], kind: str) -> list[float]:
    """Return for each round how much longer the steps of this kind are than those without a recorder."""
    return [100 * (statistics.mean(_of(kind, one)) / statistics.mean(_of(NONE, one)) - 1) for one in rounds]


def _control(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return for each round how much longer the middle block without a recorder is than the outer ones."""
    blocks = [_of(NONE, one) for one in rounds]
    return [100 * (middle / statistics.mean((first, last)) - 1) for first, middle, last in blocks]


def _spread(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}, n={len(values)} rounds"


def _ratios(
    found: Figures, name: str, rounds: Sequence[Sequence[float]], kind: str, target: float | None
) -> None:
    values = _percents(rounds, kind)
    found.add(Metric(name, "%", target=target, spread=_spread(values)), statistics.median(values))


def _off(found: Figures, job: str, step_seconds: float) -> None:
    """Add what the recorder costs in a step that it does not record, called alone."""
    recorder = record(Path("unused"), range(10**6, 10**6 + 1), rank=0)

    def one() -> None:
        with recorder.step(1):
            pass

    costs = [seconds / CALLS for seconds in timeit.repeat(one, number=CALLS, repeat=7)]
    for cost in costs:
        found.add(Metric("recorder off: time of its call in a step", "us", target=5), 1e6 * cost)
        metric = Metric(f"{job}: recorder off: its call as a share of a step", "%", target=MAX_OFF)
        found.add(metric, 100 * cost / step_seconds)


def _once(found: Figures, job: str, run: Run) -> None:
    """Add the costs of a recording that do not depend on its steps, and the time for a node."""
    report = run.reports[0]
    for name, values in (("start", report.starts[1:]), ("end and write the files", report.ends)):
        for value in values:
            found.add(Metric(f"{job}: once a recording: to {name}", "ms"), 1e3 * value)
    for traces in run.traces:
        found.add(Metric(f"{job}: nodes of a recorded step", ""), len(traces[0].nodes) / STEPS)
