"""Chooses the cheapest search settings that reach a target recall on a sample of queries.

Recall never falls with `candidates` and, apart from ties of scores, with `nprobe`. So for each `nprobe` of a
ladder, a bisection finds the fewest candidates. The cost of a query is the bytes that it reads: codes of the
scanned rows, which are read in sequence, and vectors of the candidates, which are not, and count twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon.errors import InvalidInput, TargetNotReached
from convoy_workloads.engines.aperon.index import Snapshot, VectorIndex
from convoy_workloads.engines.aperon.recall import RecallEstimate, estimate, recalls
from convoy_workloads.engines.aperon.settings import SearchSettings

FEWEST_QUERIES = 20
MOST_QUERIES = 500
"""Queries of a sample that are used."""
_RANDOM_READS = 2


@dataclass(frozen=True, slots=True)
class Tuned:
    """Settings that reach the target."""

    settings: SearchSettings
    recall: RecallEstimate
    bytes_per_query: float


def tune(
    index: VectorIndex,
    target_recall: float,
    queries: Any,
    *,
    results: int = 10,
    most: SearchSettings | None = None,
) -> Tuned:
    """Set the index's search settings to the cheapest ones whose mean recall reaches the target.

    `queries`: a sample of live queries. Rows of the index are no such sample: each finds itself. `most`: the
    largest settings allowed; by default all grains and 1000 candidates. Raises TargetNotReached,
    InvalidInput and NoSpace; the settings stay as they were.
    """
    if isinstance(target_recall, bool) or not 0 < target_recall <= 1:
        raise InvalidInput("target_recall", f"{shown(target_recall)} is not above 0 and at most 1")
    sample = np.asarray(queries, np.float32)[:MOST_QUERIES]
    if len(sample) < FEWEST_QUERIES:
        raise InvalidInput(
            "queries", f"{len(sample)} queries are too few to tune: give at least {FEWEST_QUERIES}"
        )
    snapshot = index.snapshot()
    limit = most or SearchSettings(snapshot.most_grains, max(1000, results))
    trials = _Trials(snapshot, sample, results)
    best: Tuned | None = None
    for nprobe in ladder(1, min(limit.nprobe, snapshot.most_grains)):
        largest = SearchSettings(nprobe, limit.candidates)
        if best and trials.cost(SearchSettings(nprobe, results)) >= best.bytes_per_query:
            break
        if trials.recall(largest).mean < target_recall:
            continue
        found = _fewest_candidates(trials, nprobe, ladder(results, limit.candidates), target_recall)
        cost = trials.cost(found)
        if best is None or cost < best.bytes_per_query:
            best = Tuned(found, trials.recall(found), cost)
    if best is None:
        reached = trials.recall(SearchSettings(min(limit.nprobe, snapshot.most_grains), limit.candidates))
        raise TargetNotReached(target_recall, reached.mean, limit.nprobe, limit.candidates)
    index.set_search_settings(best.settings)
    return best


class _Trials:
    """Searches of the sample, each done once."""

    def __init__(self, snapshot: Snapshot, sample: Any, results: int) -> None:
        self._snapshot, self._sample, self._results = snapshot, sample, results
        self._exact = snapshot.search(sample, results, SearchSettings(), exact=True)
        self._done: dict[SearchSettings, tuple[RecallEstimate, float]] = {}

    def recall(self, settings: SearchSettings) -> RecallEstimate:
        """Return the recall of settings."""
        return self._trial(settings)[0]

    def cost(self, settings: SearchSettings) -> float:
        """Return the bytes that a query reads."""
        row = 4 * self._snapshot.settings.dimension
        segments = len(self._snapshot.state.segments)
        scanned = self._trial(settings)[1] * self._snapshot.code_bytes
        return scanned + _RANDOM_READS * row * settings.candidates * segments

    def _trial(self, settings: SearchSettings) -> tuple[RecallEstimate, float]:
        if settings not in self._done:
            found = self._snapshot.search(self._sample, self._results, settings)
            scanned = float(found.scanned.mean())
            self._done[settings] = estimate(recalls(found, self._exact)), scanned
        return self._done[settings]


def _fewest_candidates(trials: _Trials, nprobe: int, steps: list[int], target: float) -> SearchSettings:
    """Return the settings with the fewest candidates that reach the target. The last step reaches it."""
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        if trials.recall(SearchSettings(nprobe, steps[middle])).mean >= target:
            high = middle
        else:
            low = middle + 1
    return SearchSettings(nprobe, steps[high])


def ladder(first: int, last: int) -> list[int]:
    """Return whole numbers from `first` to `last`, each about a fifth larger than the previous one."""
    found, value = [], first
    while value < last:
        found.append(value)
        value = max(value + 1, round(value * 1.2))
    return [*found, max(first, last)]
