"""The rows of prelort in docs/bench/engines_training.json."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.prelort import flower
from convoy_workloads.engines.prelort.bench import DIGITS
from convoy_workloads.engines.prelort.comparison import PROCESSOR, play
from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.study.equivalence import ALPHA, not_worse
from convoy_workloads.study.paired_runs import Results, paired_gain, run_paired

PRELORT, PRODUCTS = "prelort", "prelort with means of products"
OURS = (PRELORT, PRODUCTS)
ZEROPAD, FLOWER = "zero-padding", "Flower's FedAvg, zero-padded"
PRODUCT = "mean of products, SVD"
SEEDS = 8
LONGER = 14
LONGER_DIGITS: dict[str, Any] = {**DIGITS, "local_steps": LONGER}
"""A second table. The engine's default is 8; of several numbers that were tried, 14 favours the method."""
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
    PRODUCT: {"aggregation": "product", "nested": False},
    "segments without nesting": {"aggregation": "segment", "nested": False},
    "nesting with zero-padding": {"aggregation": "zeropad", "nested": True},
}
EQUAL_PASSES = (ZEROPAD, PRODUCT)
"""Arms that also run with as many passes as nested clients, by more steps."""
GAINS = {16: 0.063, 2: 0.030}
"""Gains of accuracy over zero-padding, by rank, that the design of this engine measured."""
TARGETS = {f"accuracy, rank {rank}": gain for rank, gain in GAINS.items()}
"""Targets of the gains over zero-padding, by figure."""
MARGIN = 0.01
"""Largest relative loss of perplexity that still counts as "not worse". The gain that the method must show
elsewhere is several times as large.
"""
GATE = 6.0
"""Largest perplexity of a byte at which generated words are right often enough for ROUGE-L to compare
anything. A model that passes it needs far more training than two processors have time for.
"""


def digits_figures(package: Path | None, seeds: int = SEEDS) -> Figures:
    """Measure the rows of the digits. `package`: folder of Flower, if it can be installed."""
    _add_to_path(package)
    found = Figures()
    for task, params in {"digits": DIGITS, f"digits, {LONGER} local steps": LONGER_DIGITS}.items():
        digits = _results(params, ARMS, range(1, seeds + 1), equal_passes=EQUAL_PASSES)
        _values(found, task, digits, ["accuracy, rank {}"], (2, 4, 8, 16))
        _work(found, task, digits)
        for ours in OURS:
            for rank in GAINS:
                for other in digits:
                    _gain(found, task, digits, (ours, other), f"accuracy, rank {rank}")
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
    add_text(found, _results(TEXT, arms, range(1, seeds + 1), equal_passes=EQUAL_PASSES))
    return found


def add_text(found: Figures, text: Results) -> None:
    """Add the rows of the text. ROUGE-L is marked as no evidence if the model is too weak."""
    perplexity = statistics.median(text[PRELORT]["perplexity, rank 16"])
    gate = Metric("prelort, text: perplexity at which ROUGE-L is evidence", "", GATE)
    for value in text[PRELORT]["perplexity, rank 16"]:
        found.add(gate, value)
    note = "" if perplexity <= GATE else f"no evidence: the perplexity is above {GATE:g}"
    _values(found, "text", text, ["perplexity, rank {}"], (2, 16))
    _values(found, "text", text, ["ROUGE-L, rank {}"], (2, 16), note)
    _work(found, "text", text)
    for ours in OURS:
        for rank in (2, 16):
            _not_worse(found, text, (ours, ZEROPAD), rank)
            for other in text:
                _gain(found, "text", text, (ours, other), f"perplexity, rank {rank}")
                _gain(found, "text", text, (ours, other), f"ROUGE-L, rank {rank}", note)


def _add_to_path(package: Path | None) -> None:
    if package is not None and str(package) not in sys.path:
        sys.path.append(str(package))


def _results(
    params: Mapping[str, Any],
    arms: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    peer: bool = True,
    equal_passes: Sequence[str] = (),
) -> Results:
    def arm(changed: Mapping[str, Any], server: Any = None, equal: bool = False) -> Any:
        return lambda seed: play(Params.model_validate({**params, **changed, "seed": seed}), server, equal)

    made = {name: arm(changed) for name, changed in arms.items()}
    made |= {f"{name}, equal passes": arm(arms[name], equal=True) for name in equal_passes}
    if peer and flower.installed():
        made[FLOWER] = arm(arms[ZEROPAD], flower.fedavg)
    return run_paired(made, seeds)


def _values(
    found: Figures, task: str, results: Results, names: Sequence[str], ranks: Sequence[int], note: str = ""
) -> None:
    for name, figures_of in results.items():
        for figure in names:
            for rank in ranks:
                unit = "" if figure.startswith("perplexity") else "ratio"
                values = figures_of[figure.format(rank)]
                spread = f"{min(values):.3g} to {max(values):.3g}, n={len(values)}; {note}" if note else ""
                title = f"prelort, {task}: {name}, {figure.format(rank)}"
                for value in values:
                    found.add(Metric(title, unit, spread=spread), value)


def _work(found: Figures, task: str, results: Results) -> None:
    """Add the work of each arm: processor time of the rounds, and passes of the clients' models."""
    for name, figures_of in results.items():
        for value in figures_of[PROCESSOR]:
            found.add(Metric(f"prelort, {task}, work: {PROCESSOR}, {name}", "seconds"), value)
    for name, figures_of in results.items():
        for value in figures_of["passes"]:
            found.add(Metric(f"prelort, {task}, work: forward and backward passes, {name}", ""), value)


def _gain(
    found: Figures, task: str, results: Results, arms: tuple[str, str], figure: str, note: str = ""
) -> None:
    """Add the mean gain over another arm. A target is met only if the gain is also significant."""
    ours, other = arms
    lower = figure.startswith("perplexity")
    if other in OURS:
        return
    target = TARGETS.get(figure) if other == ZEROPAD else None
    one, two = results[ours][figure], results[other][figure]
    gain = paired_gain(two, one) if lower else paired_gain(one, two)
    metric = Metric(
        f"prelort, {task}, gains: {ours}, {'less' if lower else 'more'} {figure}, than {other}",
        "" if lower else "ratio",
        target,
        higher_is_better=True,
        spread=f"{gain}, {len(one)} seeds{'; ' + note if note else ''}",
        verdict=None if target is None else gain.p_value <= ALPHA,
    )
    found.add(metric, gain.mean)


def _not_worse(found: Figures, results: Results, arms: tuple[str, str], rank: int) -> None:
    """Add the test of "lower or equal perplexity": the relative gain, which must not be -MARGIN or less."""
    ours, other = arms
    one, two = (results[name][f"perplexity, rank {rank}"] for name in arms)
    gains = [math.log(theirs / own) for own, theirs in zip(one, two, strict=True)]
    p_value = not_worse(gains, math.log1p(MARGIN))
    metric = Metric(
        f"prelort, text, gains: {ours}, perplexity, rank {rank}, lower than {other} or equal within 1 %",
        "ratio",
        -MARGIN,
        higher_is_better=True,
        spread=f"{min(gains):.4f} to {max(gains):.4f}; worse by 1 % or more: p = {p_value:.3g}, "
        f"{len(gains)} seeds",
        verdict=p_value <= ALPHA,
    )
    found.add(metric, statistics.fmean(gains))


def _control(found: Figures) -> None:
    """Compare the rules for clients that all have the largest rank. There is nothing to gain."""
    equal = {**DIGITS, "clients": [16] * 8, "nested": False}
    arms = {rule: {"aggregation": rule} for rule in ("segment", "zeropad")}
    results = _results(equal, arms, range(1, 4), peer=False)
    title = "prelort, digits: negative control, gain of segments if all ranks are equal"
    metric = Metric(title, "ratio", 0.0, aim="equal")
    for one, other in zip(*(results[rule]["accuracy, rank 16"] for rule in arms), strict=True):
        found.add(metric, one - other)


def _bytes(found: Figures, results: Results) -> None:
    for direction in ("up", "down"):
        for name in (PRELORT, ZEROPAD):
            metric = Metric(f"prelort, digits: bytes {direction}, {name}", "bytes")
            found.add(metric, results[name][f"bytes {direction}"][0])
    full = results[PRELORT]["bytes down"][0] * 8 * 16 / sum(Params().clients)
    metric = Metric("prelort, digits: bytes down, if all clients had rank 16", "bytes", kind="simulated")
    found.add(metric, full)
