"""The rows of aperon in docs/bench/kernels.json: searches at equal recall, builds, memory and updates.

All arms run in one process with one thread, in turns. Each has the fastest of its settings that reach the
recall on the measured queries, as in ann-benchmarks (Aumueller et al., Information Systems 87, 2020). No
query is a base vector.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.aperon import peers
from convoy_workloads.engines.aperon.patches import DIMENSION, patches
from convoy_workloads.engines.aperon.peers import Arm, Built, Ids
from convoy_workloads.engines.aperon.random_schedule import Schedule
from convoy_workloads.kernels import dispatch
from convoy_workloads.kernels.hntl import KERNEL
from convoy_workloads.kernels.hntl_arrays import ExactRequest, Floats

ROUNDS = 7
RESULTS = 10
APERON, HNSWLIB, FAISS, PCA_IVF = "aperon", "hnswlib", "faiss HNSW", "faiss PCA96, IVF SQ8, refined"
TARGETS: Mapping[float, Mapping[str, float]] = {
    0.93: {},
    0.986: {HNSWLIB: 1.2, FAISS: 1.0, PCA_IVF: 1.1},
    0.99: {HNSWLIB: 1.5, FAISS: 1.0, PCA_IVF: 1.1},
}
"""Least ratio of queries per second to a peer's, by recall. The peer is the faster of its arms."""
_BUILD_RATIO = 4.0
_MOST_CALLS = 200
KINDS = {"": 1000, " one at a time": 1}
"""Queries of a call, by the words that rows have for it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a run."""

    base: int = 60_000
    queries: int = 2000
    updates: int = 5000
    rounds: int = ROUNDS


SMALL = Sizes(3000, 100, 200, 2)


def search_figures(package: Path | None, sizes: Sizes | None = None) -> Figures:
    """Measure searches, builds, memory and updates. `package`: folder of the peers, if they can be
    installed.
    """
    sizes = sizes or Sizes()
    found = Figures()
    if package is not None and str(package) not in sys.path:
        sys.path.append(str(package))
    if package is None or not peers.available():
        metric = Metric(
            f"aperon: queries per second, times those of {HNSWLIB}", "times", higher_is_better=True
        )
        found.add_unmeasured(metric, "the peers cannot be installed")
    else:
        _compare(found, sizes)
    return found


def _compare(found: Figures, sizes: Sizes) -> None:
    base, queries = patches(sizes.base, sizes.queries)
    built: dict[str, Built] = {}
    title = f"aperon, {len(base)} patches of {DIMENSION} values"
    seconds = {}
    for arm in peers.arms():
        start = time.perf_counter()
        built[arm.name] = arm.build(base)
        seconds[arm.name] = time.perf_counter() - start
        found.add(Metric(f"{title}: build, {arm.name}", "s"), seconds[arm.name])
        overhead = built[arm.name].bytes / len(base) - 4 * DIMENSION
        found.add(Metric(f"{title}: memory per vector beyond the vector, {arm.name}", "B"), overhead)
    ratio = Metric(
        f"{title}: build, times faster than {HNSWLIB}, M 16", "times", _BUILD_RATIO, higher_is_better=True
    )
    found.add(ratio, seconds[f"{HNSWLIB}, M 16"] / seconds[APERON])
    exact = exact_ids(base, queries)
    trials = {arm.name: _sweep(arm, built[arm.name], queries, exact) for arm in peers.arms()}
    for target in TARGETS:
        chosen = {name: _fastest(one, target) for name, one in trials.items()}
        own = f"{title}, recall {target:g}"
        rates = _add_searches(found, own, (built, chosen), (queries, exact), sizes.rounds)
        _add_ratios(found, own, rates, target)
    _add_updates(found, title, built, sizes)
    for one in built.values():
        one.close()


def exact_ids(base: Floats, queries: Floats) -> Ids:
    """Return the ids of the true nearest vectors."""
    order = np.arange(len(base), dtype=np.uint32)
    request = ExactRequest(queries, base, order, None, 0, RESULTS)
    return dispatch.select(KERNEL).function.exact(request).rows


def recall(found: Ids, exact: Ids) -> float:
    """Return the share of the true nearest vectors that were found."""
    pairs = zip(found.tolist(), exact.tolist(), strict=True)
    return float(np.mean([len(set(one) & set(other)) / RESULTS for one, other in pairs]))


def _sweep(arm: Arm, built: Built, queries: Floats, exact: Ids) -> list[tuple[Any, float, float]]:
    """Return setting, recall and seconds of each setting."""
    found = []
    for setting in arm.settings:
        start = time.perf_counter()
        ids = built.search(queries, RESULTS, setting)
        found.append((setting, recall(ids, exact), time.perf_counter() - start))
    return found


def _fastest(trials: list[tuple[Any, float, float]], target: float) -> Any:
    """Return the fastest setting that reaches a recall; None if none does."""
    reached = [(seconds, at) for at, (_, own, seconds) in enumerate(trials) if own >= target]
    return trials[min(reached)[1]][0] if reached else None


def _add_searches(
    found: Figures,
    title: str,
    arms: tuple[Mapping[str, Built], Mapping[str, Any]],
    data: tuple[Floats, Ids],
    rounds: int,
) -> dict[str, dict[str, list[float]]]:
    """Measure the arms that have a setting in turns, and add their rows. Return their rates by kind and
    name.
    """
    (built, chosen), (queries, exact) = arms, data
    names = [name for name, setting in chosen.items() if setting is not None]
    rates: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in names} for kind in KINDS}
    for _ in range(rounds):
        for name in names:
            for kind, batch in KINDS.items():
                rates[kind][name].append(_rate(built[name], queries, chosen[name], batch))
    instructions = dispatch.select(KERNEL).instruction_set
    for name, setting in chosen.items():
        what = f"{name} ({instructions})" if name == APERON else name
        if setting is None:
            metric = Metric(f"{title}: queries per second, {what}", "1/s", higher_is_better=True)
            found.add_unmeasured(metric, "none of its settings reaches this recall")
            continue
        reached = recall(built[name].search(queries, RESULTS, setting), exact)
        metric = Metric(f"{title}: recall, {what}", "", spread=f"setting {setting}", higher_is_better=True)
        found.add(metric, reached)
        for kind, values in rates.items():
            for value in values[name]:
                metric = Metric(f"{title}: queries per second{kind}, {what}", "1/s", higher_is_better=True)
                found.add(metric, value)
    return rates


def _rate(built: Built, queries: Floats, setting: Any, batch: int) -> float:
    """Return the queries per second in calls of `batch` queries."""
    queries = queries[: batch * _MOST_CALLS]
    start = time.perf_counter()
    for at in range(0, len(queries), batch):
        built.search(queries[at : at + batch], RESULTS, setting)
    return len(queries) / (time.perf_counter() - start)


def _add_ratios(
    found: Figures, title: str, rates: Mapping[str, Mapping[str, list[float]]], target: float
) -> None:
    """Add the ratios to the peers. Only whole batches have a target."""
    for kind, batch in KINDS.items():
        for peer in (HNSWLIB, FAISS, PCA_IVF):
            limit = TARGETS[target].get(peer) if batch > 1 else None
            name = f"{title}: queries per second{kind}, times those of {peer}"
            metric = Metric(name, "times", limit, higher_is_better=True)
            ratios = _ratios(rates[kind], peer)
            if ratios is None:
                found.add_unmeasured(metric, f"a setting of aperon or {peer} for this recall is missing")
            for value in ratios or ():
                found.add(metric, value)


def _ratios(values: Mapping[str, list[float]], peer: str) -> list[float] | None:
    """Return aperon's rates over those of the peer's faster arm, round by round."""
    arms = [name for name in values if name.startswith(peer)]
    if not arms or APERON not in values:
        return None
    best = max(arms, key=lambda name: statistics.median(values[name]))
    return [own / other for own, other in zip(values[APERON], values[best], strict=True)]


def _add_updates(found: Figures, title: str, built: Mapping[str, Built], sizes: Sizes) -> None:
    """Add further vectors to all arms in turns, in small batches."""
    more, _ = patches(sizes.updates, 1, seed=1)
    taken: dict[str, float] = dict.fromkeys(built, 0.0)
    for at in range(0, len(more), 100):
        ids = sizes.base + np.arange(at, min(at + 100, len(more)))
        for name, one in built.items():
            start = time.perf_counter()
            one.add(more[at : at + 100], ids)
            taken[name] += time.perf_counter() - start
    for name, seconds in taken.items():
        metric = Metric(f"{title}: vectors added per second, {name}", "1/s", higher_is_better=True)
        found.add(metric, len(more) / seconds)


def schedule_figures(operations: int = 1_000_000) -> Figures:
    """Perform random operations with crashes. The schedule raises if it finds a deleted record."""
    found = Figures()
    with tempfile.TemporaryDirectory() as folder:
        schedule = Schedule(Path(folder), seed=0)
        schedule.run(operations)
        schedule.close()
    title = "aperon, random schedule"
    found.add(
        Metric(f"{title}: operations", "", operations, higher_is_better=True, kind="simulated"), operations
    )
    crashes = Metric(f"{title}: crashes", "", higher_is_better=True, kind="simulated")
    found.add(crashes, schedule.counts["crashes"])
    found.add(Metric(f"{title}: deleted vectors that were returned", "", 0, kind="simulated"), 0)
    return found
