"""The rows of odb in docs/bench/engines_training.json."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convoy_workloads.bench.comparison import Measure, Ratio, ratio
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial, run
from convoy_workloads.engines.odb.bench import BLIND, FIXED, FULL, ONLINE, program
from convoy_workloads.engines.odb.schedules import BrokenPromise, play, random_schedule

ROUNDS = 5
SCHEDULES = 50_000
GREEDY, GROUPED, ORACLE = "odb, batches filled as in the paper", "length-grouped batches", "offline oracle"
PACKAGE = "package online-dynamic-batching 0.1.2"
TARGET_LOSS = 3.2
"""Held-out loss of the comparison at equal samples per step, in nats per byte. A uniform guess has 5.55."""
EQUAL: dict[str, Any] = {**FULL, "samples_per_step": 32, "held_out_every": 2, "learning_rate": 4e-3}
"""Parameters of that comparison."""
DEADLINE_SECONDS = 3600.0

PROCESSOR = Measure(
    name="processor time", unit="seconds", value_of=lambda trial: trial.result["processor_seconds"]
)
WALL = Measure(name="wall time", unit="seconds", value_of=lambda trial: trial.result["seconds"])


def epoch_arms(package: Path | None) -> dict[str, dict[str, Any]]:
    """Return the options of the arms of an epoch. `package`: folder of the published package, if there."""
    found: dict[str, dict[str, Any]] = {
        ONLINE: {"params": FULL},
        GREEDY: {"params": {**FULL, "batch_overhead": None}},
        FIXED: {"params": {**FULL, "batching": "fixed"}},
        GROUPED: {"params": {**FULL, "batching": "grouped"}},
        ORACLE: {"params": {**FULL, "batching": "oracle"}},
        BLIND: {"params": {**FULL, "batching": "blind"}},
    }
    return {**found, PACKAGE: {"params": FULL, "package": str(package)}} if package else found


def equal_arms() -> dict[str, dict[str, Any]]:
    """Return the options of the arms at equal samples per step."""
    return {
        ONLINE: {"params": {**EQUAL, "batching": "online"}, "target_loss": TARGET_LOSS},
        FIXED: {"params": {**EQUAL, "batching": "fixed"}, "target_loss": TARGET_LOSS},
    }


def measure(arms: Mapping[str, Mapping[str, Any]], rounds: int) -> dict[str, list[Trial]]:
    """Run all arms in each round, by the same two processes. Return the trials by name of the arm."""
    options = {"arms": [dict(one) for one in arms.values()], "rounds": rounds}
    whole = run(program("arms of odb", options), DEADLINE_SECONDS)
    results: Any = whole.result
    return {
        name: [Trial(one["seconds"], one["processor_seconds"], one) for one in listed]
        for name, listed in zip(arms, results, strict=True)
    }


def figures(package: Path | None, rounds: int = ROUNDS) -> Figures:
    """Measure all rows. `package`: folder of the published package, if it can be installed."""
    found = Figures()
    _epoch(found, measure(epoch_arms(package), rounds))
    if package is None:
        metric = Metric(f"odb, an epoch: processor time, {PACKAGE}", "seconds")
        found.add_unmeasured(metric, "the package cannot be installed")
    _equal_loss(found, measure(equal_arms(), rounds))
    _schedules(found, SCHEDULES)
    _claims(found)
    return found


def _epoch(found: Figures, trials: Mapping[str, Sequence[Trial]]) -> None:
    """Add the rows of an epoch: times, padding, ratios with their targets, coverage, and the control."""
    for measure in (PROCESSOR, WALL):
        for name, runs in trials.items():
            for one in runs:
                found.add(Metric(f"odb, an epoch: {measure.name}, {name}", "seconds"), measure.value_of(one))
    for name, runs in trials.items():
        for one in runs:
            found.add(Metric(f"odb, an epoch: padding, {name}", "ratio"), one.result["padding"])
    targets = {FIXED: 1.5}
    for measure in (PROCESSOR, WALL):
        for name in trials:
            if name in {ONLINE, BLIND, ORACLE}:
                continue
            target = targets.get(name) if measure is PROCESSOR else None
            better = ratio(measure, trials[ONLINE], trials[name])
            _add_ratio(found, f"odb, an epoch: {measure.name}, times better than {name}", better, target)
    better = ratio(PROCESSOR, trials[ORACLE], trials[ONLINE])
    limit = Metric(
        "odb, an epoch: processor time over that of the offline oracle",
        "times",
        1.22,
        spread=f"{better}, {len(trials[ORACLE])} rounds",
    )
    found.add(limit, better.median)
    control = ratio(PROCESSOR, trials[BLIND], trials[FIXED])
    name = f"negative control: {BLIND}, gain over {FIXED}"
    found.add(Metric(name, "ratio - 1", 0.1, spread=str(control)), control.median - 1)
    _coverage(found, trials)


def _coverage(found: Figures, trials: Mapping[str, Sequence[Trial]]) -> None:
    """Add the rows of what must be equal: the samples of an epoch, and the steps of the ranks."""
    own = [one for name in trials if name != PACKAGE for one in trials[name]]
    other = sum(one.result["samples"] != own[0].result["samples"] for one in own)
    metric = Metric(
        "equality: odb, runs that use other samples than the first", "", 0, spread=f"{len(own)} runs"
    )
    found.add(metric, other)
    unequal = sum(one.result["unequal"] for one in own)
    found.add(Metric("equality: odb, ranks with another number of batches", "", 0), unequal)
    for one in trials.get(PACKAGE, ()):
        repeated = one.result["count"] - one.result["distinct"]
        missing = trials[ONLINE][0].result["distinct"] - one.result["distinct"]
        found.add(Metric(f"odb, an epoch: samples missing, {PACKAGE}", ""), missing)
        found.add(Metric(f"odb, an epoch: samples used twice, {PACKAGE}", ""), repeated)


def _equal_loss(found: Figures, trials: Mapping[str, Sequence[Trial]]) -> None:
    title = f"odb, to a loss of {TARGET_LOSS} at {EQUAL['samples_per_step']} samples per step"
    for name, runs in trials.items():
        for one in runs:
            found.add(Metric(f"{title}: processor time, {name}", "seconds"), PROCESSOR.value_of(one))
            found.add(Metric(f"{title}: wall time, {name}", "seconds"), WALL.value_of(one))
            found.add(Metric(f"{title}: optimizer steps, {name}", ""), one.result["steps"])
    for measure, target in ((PROCESSOR, 1.5), (WALL, None)):
        better = ratio(measure, trials[ONLINE], trials[FIXED])
        _add_ratio(found, f"{title}: {measure.name}, times better than {FIXED}", better, target)


def _add_ratio(found: Figures, name: str, better: Ratio, target: float | None) -> None:
    metric = Metric(name, "times", target, higher_is_better=True, spread=str(better))
    found.add(metric, better.median)


def _schedules(found: Figures, count: int) -> None:
    """Play random schedules of the alignment protocol, and count those that break a promise."""
    broken, rounds = 0, []
    for seed in range(count):
        schedule = random_schedule(seed)
        try:
            outcome = play(schedule)
        except BrokenPromise:
            broken += 1
            continue
        limit = schedule.settings.round_limit(max(map(len, schedule.shares)), len(schedule.shares))
        rounds.append(outcome.rounds / limit)
    found.add(
        Metric("odb, alignment: random schedules", "", count, higher_is_better=True, kind="simulated"), count
    )
    metric = Metric("odb, alignment: schedules that hang or break a promise", "", 0, kind="simulated")
    found.add(metric, broken)
    share = Metric(
        "odb, alignment: rounds over their bound",
        "ratio",
        1,
        kind="simulated",
        spread=f"{min(rounds):.2f} to {max(rounds):.2f}, median {statistics.median(rounds):.2f}",
    )
    found.add(share, max(rounds))


def _claims(found: Figures) -> None:
    claims = {
        "one node, over fixed batches, least": 1.58,
        "one node, over fixed batches, most": 2.51,
        "two nodes, over fixed batches, least": 1.71,
        "two nodes, over fixed batches, most": 3.78,
        "time over that of an offline oracle, UltraChat and LLaVA, most": 1.15,
    }
    for name, value in claims.items():
        found.add(Metric(f"odb, paper: {name}", "times", kind="paper claim"), value)
