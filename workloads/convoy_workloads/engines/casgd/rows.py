"""The rows of casgd in docs/bench/engines_training.json."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.casgd import ablation, timing
from convoy_workloads.engines.casgd.bench import FULL
from convoy_workloads.optim.block_size import message_bytes

SGD, AUTO, AGAIN = "SGD", "s auto", "SGD again"
VARIANTS: Mapping[str, timing.Variant] = {
    SGD: {"s": 1},
    AUTO: {"s": "auto"},
    "s 4": {"s": 4},
    "s 8": {"s": 8},
    "s 16": {"s": 16},
    "s 32": {"s": 32},
    "s 16, mixed precision": {"s": 16, "precision": "mixed"},
    AGAIN: {"s": 1},
}
LINKS = {"loopback": 0.0, "links of 0.5 ms": 0.0005}
TARGETS = {"loopback": 4.0, "links of 0.5 ms": 8.0}
ROUNDS = 9
CONTROL = 1.25
"""Largest gain of SGD over itself, as a ratio of medians."""


def figures(rounds: int = ROUNDS) -> Figures:
    """Measure all rows."""
    found = Figures()
    for name, latency in LINKS.items():
        _times(found, name, timing.trainings({**FULL, "latency": latency}, VARIANTS, rounds))
    for loss in ("logistic", "linear", "poisson"):
        _ablation(found, loss, [ablation.deviations(loss, seed) for seed in range(5)])
    _claims(found)
    return found


def _times(found: Figures, link: str, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    iterations, batch = FULL["iterations"], FULL["batch"]
    for name, runs in results.items():
        chosen = f" (s = {statistics.median_low([run['s'] for run in runs])})" if name == AUTO else ""
        for run in runs:
            found.add(Metric(f"casgd, {link}: {name}{chosen}", "seconds"), run["seconds"])
    for name, runs in results.items():
        if name == SGD:
            continue
        ratios = [one["seconds"] / other["seconds"] for one, other in zip(results[SGD], runs, strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} rounds"
        if name == AGAIN:
            gain = Metric(
                f"casgd, {link}: negative control, SGD against itself", "times", CONTROL, spread=spread
            )
            found.add(gain, statistics.median(ratios))
            continue
        target = TARGETS[link] if name == AUTO else None
        better = Metric(
            f"casgd, {link}: {name}, times faster than SGD",
            "times",
            target,
            higher_is_better=True,
            spread=spread,
        )
        found.add(better, statistics.median(ratios))
    for name, runs in results.items():
        s = runs[0]["s"]
        if name in {SGD, "s 8"}:
            found.add(
                Metric(f"casgd, {link}: all-reduces, {name}", "", -(-iterations // s)), runs[0]["calls"]
            )
            expected = iterations // s * message_bytes(s, batch, 4)
            found.add(Metric(f"casgd, {link}: bytes, {name}", "bytes", expected), runs[0]["bytes"])
    worst = max(abs(run["loss"] / results[SGD][0]["loss"] - 1) for runs in results.values() for run in runs)
    metric = Metric(f"casgd, {link}: largest difference of the loss from SGD", "ratio", ablation.TOLERANCE)
    found.add(metric, worst)


def _ablation(found: Figures, loss: str, seeds: Sequence[Mapping[str, float]]) -> None:
    for name in seeds[0]:
        target = ablation.TOLERANCE if name in {"fp32", "mixed"} else None
        title = name if name in {"fp32", "mixed"} else f"{name} in bf16"
        metric = Metric(f"casgd, {loss}: difference of the loss, {title}", "ratio", target)
        for one in seeds:
            found.add(metric, abs(one[name]))
    if loss == "linear":
        metric = Metric(
            "casgd, linear: negative control, recurrence in bf16",
            "ratio",
            ablation.TOLERANCE,
            higher_is_better=True,
        )
        for one in seeds:
            found.add(metric, abs(one["recurrence"]))


def _claims(found: Figures) -> None:
    for end, value in (("least", 5.1), ("most", 6.8)):
        metric = Metric(f"casgd, NVIDIA A100: {end} gain over SGD in fp32", "times", kind="paper claim")
        found.add(metric, value)
