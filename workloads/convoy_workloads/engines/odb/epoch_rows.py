"""The rows of an epoch with odb, its baselines, and the published package."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from convoy_workloads.bench.comparison import Measure, ratio
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial
from convoy_workloads.engines.odb.bench import BLIND, FIXED, ONLINE
from convoy_workloads.engines.odb.row_arms import (
    FEWEST,
    GREEDY,
    GROUPED,
    LONG,
    ORACLE,
    PACKAGE,
    PROCESSOR,
    PROCESSORS,
    WALL,
    WIDE,
    WORKER,
)

Trials = Mapping[str, Sequence[Trial]]
ORACLE_LIMIT = 1.22
"""Maximum time over that of the offline oracle."""


def add_epoch(found: Figures, trials: Trials) -> None:
    """Add the rows of an epoch: columns of each arm, ratios with their targets, coverage, and the control."""
    title = "odb, an epoch"
    _columns(found, title, trials)
    for measure in (PROCESSOR, WALL):
        for name in (FIXED, GROUPED, GREEDY):
            target = 1.5 if name == FIXED and measure is PROCESSOR else None
            row = f"{title}: {measure.name}, times better than {name}"
            add_ratio(found, row, (measure, trials[ONLINE], trials[name]), target)
    _oracle(found, title, trials)
    control = ratio(PROCESSOR, trials[BLIND], trials[FIXED])
    name = f"negative control: {BLIND}, gain over {FIXED}"
    found.add(Metric(name, "ratio - 1", 0.1, spread=str(control), aim="within"), control.median - 1)
    every = [one for listed in trials.values() for one in listed]
    other = sum(one.result["samples"] != every[0].result["samples"] for one in every)
    name = "equality: odb, runs that use other samples than the first"
    runs = f"{len(every)} runs"
    found.add(Metric(name, "", 0, spread=runs, aim="equal"), other)
    repeated = sum(one.result["count"] - one.result["distinct"] for one in every)
    found.add(Metric("equality: odb, samples used twice", "", 0, spread=runs, aim="equal"), repeated)
    unequal = sum(one.result["unequal"] for one in every)
    name = "equality: odb, ranks with another number of batches"
    found.add(Metric(name, "", 0, spread=runs, aim="equal"), unequal)


def _columns(found: Figures, title: str, trials: Trials) -> None:
    for name, runs in trials.items():
        for one in runs:
            columns = (
                ("processor time", "seconds", PROCESSOR.value_of(one)),
                ("wall time", "seconds", WALL.value_of(one)),
                ("processors that the ranks got", "", PROCESSOR.value_of(one) / WALL.value_of(one)),
                ("padding", "ratio", one.result["padding"]),
                ("optimizer steps", "", one.result["steps"]),
                ("held-out loss", "nats", one.result["loss"]),
            )
            for what, unit, value in columns:
                found.add(Metric(f"{title}: {what}, {name}", unit), value)


def _oracle(found: Figures, title: str, trials: Trials) -> None:
    """Add the rows of the distance to the offline oracle, and of its causes, which are exact counts."""
    for name in (ONLINE, WIDE):
        row = f"{title}: processor time over that of the offline oracle, {name}"
        # The oracle against the arm: how many times less time the oracle needs.
        times = ratio(PROCESSOR, trials[ORACLE], trials[name])
        limit = ORACLE_LIMIT if name == ONLINE else None
        spread = f"{times}, {len(trials[ORACLE])} rounds"
        found.add(Metric(row, "times", limit, spread=spread), times.median)
        if limit is not None:
            found.add(Metric(f"{row}, upper end of the interval", "times", limit, spread=spread), times.high)
    best = trials[ORACLE][0]
    for name in (ONLINE, WIDE, GREEDY):
        one = trials[name][0]
        row = f"{title}: tokens with padding over those of the offline oracle, {name}"
        found.add(Metric(row, "times"), _padded(one) / _padded(best))
        row = f"{title}: batches over those of the offline oracle, {name}"
        found.add(Metric(row, "times"), one.result["batches"] / best.result["batches"])


def _padded(one: Trial) -> float:
    return float(one.result["tokens"] / (1 - one.result["padding"]))


def add_workers(found: Figures, trials: Trials, starts: Trials) -> None:
    """Add the rows of loaders with one worker process: times, coverage with empty documents, and the share of
    the time that the start of the processes needs.

    `starts`: epochs of FEWEST samples, which are hardly more than the start.
    """
    title = "odb, one worker"
    _columns(found, title, trials)
    for name, runs in trials.items():
        for one, start in zip(runs, starts[name], strict=True):
            share = PROCESSOR.value_of(start) / PROCESSOR.value_of(one)
            spread = f"an epoch of {FEWEST} samples over one of {LONG['samples']}, n={len(runs)}"
            row = f"{title}: time of the processes' start, {name}"
            found.add(Metric(row, "ratio", 0.05, spread=spread), share)
            used, left_out = one.result["distinct"], one.result["left_out"]
            ours = name == WORKER
            row = f"{title}: documents reported as left out, {name}"
            found.add(Metric(row, ""), left_out)
            row = f"{title}: documents neither used nor reported, {name}"
            lost = LONG["samples"] - used - left_out
            found.add(Metric(row, "", 0 if ours else None, aim="equal"), lost)
            row = f"{title}: documents used twice, {name}"
            found.add(Metric(row, "", 0 if ours else None, aim="equal"), one.result["count"] - used)
    for measure in (PROCESSOR, WALL):
        row = f"{title}: {measure.name} of an epoch, times better than {PACKAGE}"
        add_ratio(found, row, (measure, trials[WORKER], trials[PACKAGE]), None)


def add_failures(found: Figures, failures: int, rounds: int) -> None:
    """Add the number of rounds that failed and were repeated, beside `rounds` that ended."""
    spread = f"beside {rounds} rounds that ended"
    found.add(Metric(f"odb, one worker: rounds that failed, {PACKAGE}", "", spread=spread), failures)


def add_ratio(
    found: Figures,
    name: str,
    compared: tuple[Measure, Sequence[Trial], Sequence[Trial]],
    target: float | None,
) -> None:
    """Add the row of how many times better an arm is than another. Wall times of a machine that other
    programs used are not compared.
    """
    measure, ours, theirs = compared
    better = ratio(measure, ours, theirs)
    metric = Metric(name, "times", target, higher_is_better=True, spread=str(better))
    got = statistics.median(PROCESSOR.value_of(one) / WALL.value_of(one) for one in (*ours, *theirs))
    if measure is WALL and got < PROCESSORS:
        why = f"the two ranks got {got:.2f} processors, because other programs used the machine"
        found.add_unmeasured(metric, why)
        return
    found.add(metric, better.median)
