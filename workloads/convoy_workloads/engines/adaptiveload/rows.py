"""The rows of adaptiveload in docs/bench/engines_training.json, except those of a GPU (kernel_rows.py)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from convoy_workloads.bench.comparison import Measure, ratio
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial, run
from convoy_workloads.engines.adaptiveload import kernel_rows, simulated_rows
from convoy_workloads.engines.adaptiveload.bench import BASE, DEALT, EQUAL, FULL, program

ROUNDS, MEMORY_ROUNDS = 5, 3
DEADLINE_SECONDS = 3600.0
AGAIN = "equal-token batches again"
SIZED = "measured cost, random dealing"
SORTED = "equal tokens, sorted dealing"
MORE = "equal-token batches with the memory of adaptiveload"
VARIANTS: Mapping[str, dict[str, Any]] = {
    DEALT: {**FULL},
    SIZED: {**FULL, "dealing": "none"},
    SORTED: {**FULL, **BASE, "dealing": "window_sorted"},
    EQUAL: {**FULL, **BASE},
    MORE: {**FULL, **BASE, "memory_tokens": FULL["memory_tokens"]},
    AGAIN: {**FULL, **BASE},
}
TARGETS = {DEALT: (0.05, 1.5), SORTED: (0.05, 1.5), SIZED: (0.15, 1.35)}
"""Maximum imbalance and minimum gain over equal-token batches."""
BUSY = Measure(name="time", unit="seconds", value_of=lambda trial: trial.result["busy"])
SHORT: dict[str, Any] = {"samples": 3 * len(FULL["buckets"]) * 4}
"""Samples of a run that measures memory: a few batches of each size."""


def figures(rounds: int = ROUNDS, memory_rounds: int = MEMORY_ROUNDS) -> Figures:
    """Measure all rows that need no GPU."""
    found = Figures()
    simulated_rows.add_rows(found)
    add_measured(found, measure(VARIANTS, rounds))
    add_memory(found, measure_memory(VARIANTS, memory_rounds))
    kernel_rows.add_cpu_rows(found)
    _claims(found)
    return found


def measure(variants: Mapping[str, Mapping[str, Any]], rounds: int) -> dict[str, list[Trial]]:
    """Run all variants in each round, by the same two processes. Return the trials by name."""
    options = {"arms": [dict(one) for one in variants.values()], "rounds": rounds}
    results: Any = run(program("arms of adaptiveload", options), DEADLINE_SECONDS).result
    return {
        name: [Trial(one["seconds"], one["processor_seconds"], one) for one in listed]
        for name, listed in zip(variants, results, strict=True)
    }


def measure_memory(variants: Mapping[str, Mapping[str, Any]], rounds: int) -> dict[str, list[int]]:
    """Run each variant in processes of its own, so that no variant's peak is that of another. Return the
    growth of rank 0 in bytes, by name.
    """
    found: dict[str, list[int]] = {name: [] for name in variants if name != AGAIN}
    for _ in range(rounds):
        for name, listed in found.items():
            trial = run(program(name, {"params": {**variants[name], **SHORT}}))
            listed.append(trial.result["peak_memory_bytes"])
    return found


def add_measured(found: Figures, trials: Mapping[str, Sequence[Trial]]) -> None:
    """Add the rows of two ranks: times, imbalance, steps and loss, ratios with their targets, and the
    controls.
    """
    title = "adaptiveload, 2 ranks"
    for name, runs in trials.items():
        limit, _ = TARGETS.get(name, (None, None))
        columns = (
            (Metric(f"{title}: time of an epoch on its slowest ranks, {name}", "seconds"), "busy"),
            (Metric(f"{title}: imbalance, {name}", "ratio", limit), "imbalance"),
            (Metric(f"{title}: optimizer steps of an epoch, {name}", ""), "steps"),
            (Metric(f"{title}: held-out loss after an epoch, {name}", "mean squared error"), "loss"),
        )
        for metric, key in columns:
            for one in runs:
                found.add(metric, one.result[key])
    for one in trials[EQUAL]:
        name = f"{title}: samples per second without any waiting, times better than {EQUAL}"
        metric = Metric(name, "times", higher_is_better=True)
        found.add(metric, one.result["busy"] / one.result["least"])
    for name in trials:
        if name in {EQUAL, AGAIN}:
            continue
        better, (_, least) = ratio(BUSY, trials[name], trials[EQUAL]), TARGETS.get(name, (None, None))
        row = f"{title}: samples per second, {name}, times better than {EQUAL}"
        found.add(Metric(row, "times", least, higher_is_better=True, spread=str(better)), better.median)
    _controls(found, trials)


def _controls(found: Figures, trials: Mapping[str, Sequence[Trial]]) -> None:
    same = ratio(BUSY, trials[AGAIN], trials[EQUAL])
    name = f"negative control: {AGAIN}, gain over {EQUAL}"
    found.add(Metric(name, "ratio - 1", 0.15, spread=str(same), aim="within"), same.median - 1)
    # The interval of two equal arms shows the noise of the machine.
    name = f"negative control: {AGAIN}, width of its interval"
    found.add(Metric(name, "ratio", 0.1, spread=str(same)), same.high - same.low)
    every = [one for runs in trials.values() for one in runs]
    for key, what in (("samples", "runs that use other samples"), ("tokens", "runs with other tokens")):
        other = sum(one.result[key] != every[0].result[key] for one in every)
        name = f"equality: adaptiveload, {what} in an epoch than the first"
        found.add(Metric(name, "", 0, spread=f"{len(every)} runs", aim="equal"), other)


def add_memory(found: Figures, peaks: Mapping[str, Sequence[int]]) -> None:
    """Add the rows of the peak memory of two ranks."""
    title = "adaptiveload, 2 ranks"
    for name, values in peaks.items():
        metric = Metric(f"{title}: peak memory of rank 0 beyond that before the first step, {name}", "bytes")
        for one in values:
            found.add(metric, one)
    times = statistics.median(peaks[DEALT]) / statistics.median(peaks[EQUAL])
    spread = f"medians of {len(peaks[DEALT])} runs"
    found.add(Metric(f"{title}: peak memory, {DEALT} over {EQUAL}", "times", spread=spread), times)


def _claims(found: Figures) -> None:
    claims = {
        "imbalance before": (0.39, "ratio"),
        "imbalance after": (0.189, "ratio"),
        "throughput of Wan 2.1": (1.272, "times"),
        "peak-memory efficiency": (1.227, "times"),
    }
    for name, (value, unit) in claims.items():
        found.add(Metric(f"adaptiveload, paper: {name}", unit, kind="paper claim"), value)
