"""The rows of odb in docs/bench/engines_training.json."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial
from convoy_workloads.engines.odb import epoch_rows
from convoy_workloads.engines.odb.bench import FIXED, ONLINE
from convoy_workloads.engines.odb.row_arms import (
    EQUAL,
    FEWEST,
    LONG,
    PACKAGE,
    PROCESSOR,
    STEP,
    TARGET_LOSS,
    WALL,
    epoch_arms,
    equal_arms,
    measure,
    measure_workers,
)
from convoy_workloads.engines.odb.schedules import BrokenPromise, play, random_schedule

ROUNDS = 5
SCHEDULES = 50_000


def figures(package: Path | None, rounds: int = ROUNDS) -> Figures:
    """Measure all rows. `package`: folder of the published package, if it can be installed."""
    found = Figures()
    epoch_rows.add_epoch(found, measure(epoch_arms(), rounds))
    if package is None:
        metric = Metric(f"odb, one worker: processor time of an epoch, {PACKAGE}", "seconds")
        found.add_unmeasured(metric, "the package cannot be installed")
    else:
        starts, short = measure_workers(package, {**LONG, "samples": FEWEST}, rounds)
        trials, long = measure_workers(package, LONG, rounds)
        epoch_rows.add_workers(found, trials, starts)
        epoch_rows.add_failures(found, short + long, 2 * rounds)
    add_equal_loss(found, measure(equal_arms(), rounds, seeds=True))
    add_schedules(found, SCHEDULES)
    _claims(found)
    return found


def add_equal_loss(found: Figures, trials: Mapping[str, Sequence[Trial]]) -> None:
    """Add the rows of the training to a loss: times, samples per step, and ratios with their targets."""
    title = f"odb, to a loss of {TARGET_LOSS} at equal samples per step"
    for name, runs in trials.items():
        for one in runs:
            steps, samples = one.result["steps"], one.result["count"]
            columns = (
                ("processor time", "seconds", PROCESSOR.value_of(one)),
                ("wall time", "seconds", WALL.value_of(one)),
                ("optimizer steps", "", steps),
                (STEP.name, STEP.unit, STEP.value_of(one)),
                ("samples", "", samples),
                ("samples per optimizer step", "", samples / steps),
                ("held-out loss at the end", "nats", one.result["loss"]),
            )
            for what, unit, value in columns:
                found.add(Metric(f"{title}: {what}, {name}", unit), value)
    every, mean = [one for runs in trials.values() for one in runs], EQUAL["samples_per_step"]
    name = f"equality: {title}: largest relative difference from {mean} samples per step"
    differences = [abs(one.result["count"] / one.result["steps"] / mean - 1) for one in every]
    found.add(Metric(name, "ratio", 0.05, spread=f"{len(every)} runs"), max(differences))
    for quantity, target in ((PROCESSOR, 1.5), (STEP, None), (WALL, None)):
        name = f"{title}: {quantity.name}, times better than {FIXED}"
        epoch_rows.add_ratio(found, name, (quantity, trials[ONLINE], trials[FIXED]), target)


def add_schedules(found: Figures, count: int) -> None:
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
