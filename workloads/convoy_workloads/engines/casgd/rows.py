"""The rows of casgd in docs/bench/engines_training.json."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.casgd import ablation, equality, timing
from convoy_workloads.engines.casgd.bench import FULL, JOB_ITERATIONS
from convoy_workloads.engines.casgd.ranks import on_ranks
from convoy_workloads.optim.losses import LossName
from convoy_workloads.study.equivalence import equivalence

SGD, AUTO, AGAIN = "SGD", "s auto", "SGD again"
VARIANTS: Mapping[str, timing.Variant] = {
    SGD: {"s": 1},
    AUTO: {"s": "auto"},
    "s 4": {"s": 4},
    "s 6": {"s": 6},
    "s 8": {"s": 8},
    "s 16": {"s": 16},
    "s 32": {"s": 32},
    "s 16, mixed precision": {"s": 16, "precision": "mixed"},
    AGAIN: {"s": 1},
}
"""6 does not divide the number of iterations."""
LINKS = {"loopback": 0.0, "links of 0.5 ms": 0.0005}
TARGETS = {"loopback": 4.0, "links of 0.5 ms": 8.0}
LOSSES: Sequence[LossName] = ("logistic", "linear", "poisson")
ROUNDS, JOB_ROUNDS, SEEDS = 9, 5, 8
CONTROL = 0.25
"""Largest gain or loss of SGD against itself, as a ratio of medians less 1."""
PAPER = "arXiv 2606.18463, abstract: mixed precision with a bf16 Gram matrix, against SGD in fp32"


def figures(rounds: int = ROUNDS) -> Figures:
    """Measure all rows."""
    found = Figures()
    for name, latency in LINKS.items():
        add_times(found, name, timing.trainings({**FULL, "latency": latency}, VARIANTS, rounds))
        job = {**FULL, "latency": latency, "iterations": JOB_ITERATIONS}
        pair = {one: VARIANTS[one] for one in (SGD, AUTO)}
        add_with_choice(found, name, timing.trainings(job, pair, min(rounds, JOB_ROUNDS)), JOB_ITERATIONS)
    for loss in LOSSES:
        add_equality(found, loss, on_ranks(equality.compare, loss))
    for loss in LOSSES:
        add_precisions(found, loss, on_ranks(ablation.table, loss, SEEDS))
    signs = on_ranks(ablation.table, "linear", SEEDS, True, ["fp32", "mixed", "recurrence"])
    add_precisions(found, "linear, random signs", signs)
    add_control(found, signs)
    _claims(found)
    return found


def add_times(found: Figures, link: str, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Add the rows of trainings in turns: times, ratios to SGD, and what the collectives count."""
    for name, runs in results.items():
        chosen = f" (s = {statistics.median_low([run['s'] for run in runs])})" if name == AUTO else ""
        for run in runs:
            found.add(Metric(f"casgd, {link}: {name}{chosen}", "seconds"), run["seconds"])
    for name, runs in results.items():
        if name == SGD:
            continue
        ratios = [one["seconds"] / other["seconds"] for one, other in zip(results[SGD], runs, strict=True)]
        if name == AGAIN:
            title = f"casgd, {link}: negative control, SGD against itself"
            spread = _spread([one - 1 for one in ratios])
            control = Metric(title, "ratio - 1", CONTROL, spread=spread, aim="within")
            found.add(control, statistics.median(ratios) - 1)
            continue
        without = ", without its choice" if name == AUTO else ""
        title = f"casgd, {link}: {name}{without}, times faster than SGD"
        target = TARGETS[link] if name == AUTO else None
        metric = Metric(title, "times", target, higher_is_better=True, spread=_spread(ratios))
        found.add(metric, statistics.median(ratios))
    add_with_choice(found, link, results, FULL["iterations"])
    _add_traffic(found, link, results)
    worst = max(abs(run["loss"] / results[SGD][0]["loss"] - 1) for runs in results.values() for run in runs)
    metric = Metric(f"casgd, {link}: largest difference of the loss from SGD", "ratio", ablation.TOLERANCE)
    found.add(metric, worst)


def add_with_choice(
    found: Figures, link: str, results: Mapping[str, Sequence[Mapping[str, Any]]], iterations: int
) -> None:
    """Add the rows of `auto` with the seconds in which it chooses s, before the first iteration."""
    for run in results[AUTO]:
        metric = Metric(f"casgd, {link}: s auto, seconds to choose s, {iterations} iterations", "seconds")
        found.add(metric, run["choice_seconds"])
    ratios = [
        one["seconds"] / (other["seconds"] + other["choice_seconds"])
        for one, other in zip(results[SGD], results[AUTO], strict=True)
    ]
    title = f"casgd, {link}: s auto with its choice, times faster than SGD, {iterations} iterations"
    metric = Metric(title, "times", TARGETS[link], higher_is_better=True, spread=_spread(ratios))
    found.add(metric, statistics.median(ratios))


def _add_traffic(found: Figures, link: str, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Add the all-reduces and bytes of all runs of each variant. `auto` may choose another s in each run, so
    its rows count what exceeds the formulas.
    """
    for name, runs in results.items():
        for run in runs:
            calls, size = equality.expected_traffic(run["s"], FULL["iterations"], FULL["batch"], itemsize=4)
            title = f"casgd, {link}: all-reduces, {name}"
            if name == AUTO:
                beyond = Metric(f"{title}, beyond T/s rounded up", "", 0, aim="equal")
                found.add(beyond, run["calls"] - calls)
                extra = Metric(f"casgd, {link}: bytes, {name}, beyond the formula", "bytes", 0, aim="equal")
                found.add(extra, run["bytes"] - size)
                continue
            found.add(Metric(title, "", calls, aim="equal"), run["calls"])
            found.add(Metric(f"casgd, {link}: bytes, {name}", "bytes", size, aim="equal"), run["bytes"])


def add_equality(found: Figures, loss: LossName, results: Mapping[str, Sequence[float]]) -> None:
    """Add the rows of fp64: weights and counts of all values of s, and of a method that is not SGD."""
    differences, every = results["difference"], f"s = 1 to {len(results['difference'])}"
    worst = max(range(len(differences)), key=differences.__getitem__) + 1
    title = f"casgd, fp64, {loss}: largest difference of a weight from torch.optim.SGD, {every}"
    spread = f"largest at s = {worst}, {equality.ITERATIONS} iterations, two ranks"
    found.add(Metric(title, "", equality.LIMIT, spread=spread), max(differences))
    for what, key in (
        ("all-reduces than T/s rounded up", "excess"),
        ("bytes than the formula", "excess_bytes"),
    ):
        title = f"casgd, fp64, {loss}: values of s with other {what}"
        found.add(Metric(title, "", 0, spread=every, aim="equal"), sum(map(bool, results[key])))
    control = Metric(
        f"casgd, fp64, {loss}: negative control, weights averaged every 8 iterations",
        "",
        1e6 * equality.LIMIT,
        higher_is_better=True,
    )
    found.add(control, equality.local_sgd_difference(loss, 8))


def add_precisions(found: Figures, title: str, seeds: Sequence[Mapping[str, float]]) -> None:
    """Add the differences of the loss. Those of fp32 and of the recipe must pass the test of equivalence."""
    for name in seeds[0]:
        if name not in {"fp32", "mixed"}:
            metric = Metric(f"casgd, {title}: difference of the loss, {name} in bf16", "ratio")
        else:
            test = equivalence([one[name] for one in seeds], ablation.TOLERANCE)
            sizes = _spread([abs(one[name]) for one in seeds], "seeds", 5)
            metric = Metric(
                f"casgd, {title}: difference of the loss, {name}",
                "ratio",
                ablation.TOLERANCE,
                spread=f"{sizes}; test of a mean within ±0.5 %: p = {test.p_value:.3g}",
                verdict=test.equivalent,
            )
        for one in seeds:
            found.add(metric, abs(one[name]))


def add_control(found: Figures, seeds: Sequence[Mapping[str, float]]) -> None:
    """Add the negative control: the same test must not find a recurrence in bf16 equivalent."""
    test = equivalence([one["recurrence"] for one in seeds], ablation.TOLERANCE)
    metric = Metric(
        "casgd, linear, random signs: negative control, recurrence in bf16",
        "ratio",
        ablation.TOLERANCE,
        higher_is_better=True,
        spread=f"test of a mean within ±0.5 %: p = {test.p_value:.3g}",
        verdict=not test.equivalent,
    )
    for one in seeds:
        found.add(metric, abs(one["recurrence"]))


def _spread(values: Sequence[float], noun: str = "rounds", digits: int = 2) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}, {len(values)} {noun}"


def _claims(found: Figures) -> None:
    for end, value in (("least", 5.1), ("most", 6.8)):
        title = f"casgd, NVIDIA A100: {end} gain of the bf16 recipe over SGD in fp32"
        found.add(Metric(title, "times", kind="paper claim", spread=PAPER), value)
