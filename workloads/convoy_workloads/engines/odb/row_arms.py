"""The arms of the rows of odb: their parameters, and their runs in turns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convoy_workloads.bench.comparison import Measure
from convoy_workloads.bench.trial import Trial, TrialError, run
from convoy_workloads.engines.odb.bench import BLIND, FIXED, FULL, ONLINE, program

GREEDY, GROUPED, ORACLE = "odb, batches filled as in the paper", "length-grouped batches", "offline oracle"
WIDE = "odb, window of the whole epoch"
PACKAGE = "package online-dynamic-batching 0.1.2"
WORKER = "odb, one worker process of each rank"
EPOCH: dict[str, Any] = {**FULL, "samples": 800}
"""Parameters of the comparison of an epoch."""
LONG: dict[str, Any] = {**FULL, "samples": 5600, "workers": 1}
"""Parameters of the comparison with the published package, whose loader needs a worker process. The epoch is
so long that the start of the processes hardly counts.
"""
EMPTY_EVERY = 100
"""One document of that comparison in so many is empty."""
FEWEST = 8
"""Samples of an epoch that shows the start of the processes."""
FAILURES = 20
"""Maximum number of rounds with the published package that may fail. Its loader sometimes raises RuntimeError
or waits 5 s at the end of an epoch, when a process of the loader ends before its data is read.
"""
PROCESSORS = 1.0
"""Processors that two ranks must have got for their wall times to count. With fewer, other programs used the
machine.
"""
TARGET_LOSS = 3.2
"""Held-out loss of the comparison at equal samples per step, in nats per byte. A uniform guess has 5.55.
Each round has another seed.
"""
EQUAL: dict[str, Any] = {**FULL, "samples_per_step": 32, "held_out_every": 2, "learning_rate": 4e-3}
"""Parameters of that comparison."""
DEADLINE_SECONDS = 3600.0

PROCESSOR = Measure(
    name="processor time", unit="seconds", value_of=lambda trial: trial.result["processor_seconds"]
)
STEP = Measure(
    name="processor time of a step",
    unit="seconds",
    value_of=lambda trial: trial.result["processor_seconds"] / trial.result["steps"],
)
WALL = Measure(name="wall time", unit="seconds", value_of=lambda trial: trial.result["seconds"])


def epoch_arms() -> dict[str, dict[str, Any]]:
    """Return the options of the arms of an epoch."""
    return {
        ONLINE: {"params": EPOCH},
        GREEDY: {"params": {**EPOCH, "batch_overhead": None}},
        WIDE: {"params": {**EPOCH, "window": EPOCH["samples"]}},
        FIXED: {"params": {**EPOCH, "batching": "fixed"}},
        GROUPED: {"params": {**EPOCH, "batching": "grouped"}},
        ORACLE: {"params": {**EPOCH, "batching": "oracle"}},
        BLIND: {"params": {**EPOCH, "batching": "blind"}},
    }


def worker_arms(package: Path, params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of the arms of loaders with one worker process. `package`: the folder of the
    published package.
    """
    common = {"params": dict(params), "empty_every": EMPTY_EVERY}
    return {WORKER: common, PACKAGE: {**common, "package": str(package)}}


def equal_arms() -> dict[str, dict[str, Any]]:
    """Return the options of the arms at equal samples per step."""
    return {
        ONLINE: {"params": {**EQUAL, "batching": "online"}, "target_loss": TARGET_LOSS},
        FIXED: {"params": {**EQUAL, "batching": "fixed"}, "target_loss": TARGET_LOSS},
    }


def measure(
    arms: Mapping[str, Mapping[str, Any]], rounds: int, seeds: bool = False
) -> dict[str, list[Trial]]:
    """Run all arms in each round, by the same two processes. Return the trials by name of the arm.
    `seeds`: True for another seed in each round.
    """
    options = {"arms": [dict(one) for one in arms.values()], "rounds": rounds, "seeds": seeds}
    whole = run(program("arms of odb", options), DEADLINE_SECONDS)
    results: Any = whole.result
    return {
        name: [Trial(one["seconds"], one["processor_seconds"], one) for one in listed]
        for name, listed in zip(arms, results, strict=True)
    }


def measure_workers(
    package: Path, params: Mapping[str, Any], rounds: int
) -> tuple[dict[str, list[Trial]], int]:
    """Run the arms of `worker_arms`, each round by processes of its own. A round in which the package fails
    is repeated. Return the trials by name of the arm, and the number of rounds that failed.

    Raises TrialError after more than `FAILURES` failures, and if something else fails.
    """
    found: dict[str, list[Trial]] = {WORKER: [], PACKAGE: []}
    failures = 0
    while len(found[WORKER]) < rounds:
        try:
            for name, trials in measure(worker_arms(package, params), 1).items():
                found[name] += trials
        except TrialError as error:
            failures += 1
            if str(package) not in str(error) or failures > FAILURES:
                raise
    return found, failures
