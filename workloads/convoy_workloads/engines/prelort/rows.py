"""The rows of prelort in docs/bench/engines_training.json."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.prelort import flower
from convoy_workloads.engines.prelort.bench import DIGITS
from convoy_workloads.engines.prelort.comparison import play
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.study.paired_runs import Results, paired_gain, run_paired

PRELORT, PRODUCTS = "prelort", "prelort with means of products"
OURS = (PRELORT, PRODUCTS)
ZEROPAD, FLOWER = "zero-padding", "Flower's FedAvg, zero-padded"
SEEDS = 8
TEXT: dict[str, Any] = {
    "task": "text",
    "steps": 8,
    "batch": 8,
    "pretrain_steps": 300,
}
TEXT_SEEDS = 5
ARMS: Mapping[str, Mapping[str, Any]] = {
    PRELORT: {"aggregation": "segment", "nested": True},
    PRODUCTS: {"aggregation": "segment-product", "nested": True},
    ZEROPAD: {"aggregation": "zeropad", "nested": False},
    "replication": {"aggregation": "replicate", "nested": False},
    "truncation": {"aggregation": "truncate", "nested": False},
    "mean of products, SVD": {"aggregation": "product", "nested": False},
    "segments without nesting": {"aggregation": "segment", "nested": False},
    "nesting with zero-padding": {"aggregation": "zeropad", "nested": True},
}
GAINS = {16: 0.063, 2: 0.030}
"""Gains of accuracy over zero-padding, by rank, that the design of this engine measured."""


def digits_figures(package: Path | None, seeds: int = SEEDS) -> Figures:
    """Measure the rows of the digits. `package`: folder of Flower, if it can be installed."""
    _add_to_path(package)
    found = Figures()
    digits = _results(DIGITS, ARMS, range(1, seeds + 1))
    _values(found, "digits", digits, ["accuracy, rank {}"], (2, 4, 8, 16))
    for ours in OURS:
        for rank, wanted in GAINS.items():
            for other in digits:
                target = wanted if other == ZEROPAD else None
                _gain(found, "digits", digits, (ours, other), f"accuracy, rank {rank}", target)
    _control(found)
    _bytes(found, digits)
    if FLOWER not in digits:
        why = "the package flwr cannot be installed"
        found.add_unmeasured(Metric(f"prelort, digits: {FLOWER}, accuracy, rank 16", "ratio"), why)
    return found


def text_figures(package: Path | None, seeds: int = TEXT_SEEDS) -> Figures:
    """Measure the rows of the text. `package`: folder of Flower, if it can be installed."""
    _add_to_path(package)
    found = Figures()
    arms = {name: one for name, one in ARMS.items() if "nest" not in name}
    text = _results(TEXT, arms, range(1, seeds + 1))
    _values(found, "text", text, ["perplexity, rank {}", "ROUGE-L, rank {}"], (2, 16))
    for ours in OURS:
        for rank in (2, 16):
            for other in text:
                target = 0.0 if other == ZEROPAD else None
                _gain(found, "text", text, (ours, other), f"perplexity, rank {rank}", target)
                _gain(found, "text", text, (ours, other), f"ROUGE-L, rank {rank}", None)
    return found


def _add_to_path(package: Path | None) -> None:
    if package is not None and str(package) not in sys.path:
        sys.path.append(str(package))


def _results(
    params: Mapping[str, Any],
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    peer: bool = True,
) -> Results:
    def arm(changed: Mapping[str, Any], server: Any = None) -> Any:
        return lambda seed: play(Params.model_validate({**params, **changed, "seed": seed}), server)

    made = {name: arm(changed) for name, changed in arms.items()}
    if peer and flower.installed():
        made[FLOWER] = arm(arms[ZEROPAD], flower.fedavg)
    return run_paired(made, seeds)


def _values(found: Figures, task: str, results: Results, names: Sequence[str], ranks: Sequence[int]) -> None:
    for name, figures_of in results.items():
        for figure in names:
            for rank in ranks:
                unit = "" if figure.startswith("perplexity") else "ratio"
                metric = Metric(f"prelort, {task}: {name}, {figure.format(rank)}", unit)
                for value in figures_of[figure.format(rank)]:
                    found.add(metric, value)


def _gain(
    found: Figures,
    task: str,
    results: Results,
    arms: tuple[str, str],
    figure: str,
    target: float | None,
) -> None:
    ours, other = arms
    lower = figure.startswith("perplexity")
    if other in OURS:
        return
    one, two = results[ours][figure], results[other][figure]
    gain = paired_gain(two, one) if lower else paired_gain(one, two)
    metric = Metric(
        f"prelort, {task}, gains: {ours}, {'less' if lower else 'more'} {figure}, than {other}",
        "" if lower else "ratio",
        target,
        higher_is_better=True,
        spread=f"{gain}, {len(one)} seeds",
    )
    found.add(metric, gain.mean)


def _control(found: Figures) -> None:
    """Compare the rules for clients that all have the largest rank. There is nothing to gain."""
    equal = {**DIGITS, "clients": [16] * 8, "nested": False}
    arms = {rule: {"aggregation": rule} for rule in ("segment", "zeropad")}
    results = _results(equal, arms, range(1, 4), peer=False)
    metric = Metric(
        "prelort, digits: negative control, gain of segments if all ranks are equal", "ratio", 0.0
    )
    for one, other in zip(*(results[rule]["accuracy, rank 16"] for rule in arms), strict=True):
        found.add(metric, abs(one - other))


def _bytes(found: Figures, results: Results) -> None:
    for direction in ("up", "down"):
        for name in (PRELORT, ZEROPAD):
            metric = Metric(f"prelort, digits: bytes {direction}, {name}", "bytes")
            found.add(metric, results[name][f"bytes {direction}"][0])
    full = results[PRELORT]["bytes down"][0] * 8 * 16 / sum(Params().clients)
    metric = Metric("prelort, digits: bytes down, if all clients had rank 16", "bytes", kind="simulated")
    found.add(metric, full)
