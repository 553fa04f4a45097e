"""Recall: the share of the true nearest records that a search returns, estimated on live queries."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.searching import SearchResult
from convoy_workloads.kernels.hntl_arrays import Floats

_Z = 1.959964
"""Quantile of the normal distribution for an interval of 95 %."""
_WAITING = 16
"""Most queries that wait for their exact results. Further ones are not sampled."""


@dataclass(frozen=True, slots=True)
class RecallEstimate:
    """An estimate with its 95 % interval."""

    mean: float
    low: float
    high: float
    queries: int


def recalls(found: SearchResult, exact: SearchResult) -> npt.NDArray[np.float64]:
    """Return the recall of each query. A result as near as the last exact one counts, whatever its id."""
    there = np.isfinite(exact.distances)
    counts = there.sum(axis=1)
    last = np.where(there, exact.distances, -np.inf).max(axis=1)
    hits = (np.isfinite(found.distances) & (found.distances <= last[:, None])).sum(axis=1)
    return np.where(counts > 0, np.minimum(hits, counts) / np.maximum(counts, 1), 1.0)


def estimate(values: npt.NDArray[np.float64]) -> RecallEstimate:
    """Return the mean of recalls with its Wilson interval.

    Each query counts as one trial. The results of one query are not independent, and their mean varies at
    most as much as one trial, so the interval is rather too wide.
    """
    count, mean = len(values), float(values.mean())
    centre = mean + _Z * _Z / (2 * count)
    half = _Z * math.sqrt(mean * (1 - mean) / count + _Z * _Z / (4 * count * count))
    scale = 1 + _Z * _Z / count
    low, high = max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)
    return RecallEstimate(mean, min(low, mean), max(high, mean), count)


class RecallMonitor:
    """Samples live queries, and compares their results with exact ones at a bounded cost.

    `offer` costs next to nothing. `measure` does the work; call it from a thread of its own.
    """

    def __init__(
        self,
        index: VectorIndex,
        *,
        share: float = 0.01,
        budget: float = 0.02,
        window: int = 500,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`share`: of the queries that are sampled. `budget`: of the time that exact searches may use.
        `window`: the last samples that count.
        """
        self._index, self._share, self._budget, self._clock = index, share, budget, clock
        self._rng = np.random.default_rng(0)
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Floats, int]] = deque(maxlen=_WAITING)
        self._values: deque[float] = deque(maxlen=window)
        self._queries: deque[Floats] = deque(maxlen=window)
        self._next = 0.0

    def offer(self, queries: Any, results: int) -> None:
        """Sample queries of a search without a filter."""
        chosen = np.flatnonzero(self._rng.random(len(queries)) < self._share)
        with self._lock:
            for at in chosen[:_WAITING]:
                query = np.array(queries[at], np.float32)
                self._waiting.append((query, results))
                self._queries.append(query)

    def measure(self) -> bool:
        """Compare one waiting query, if the budget allows. Return True if one was compared."""
        start = self._clock()
        with self._lock:
            if start < self._next or not self._waiting:
                return False
            query, results = self._waiting.popleft()
        snapshot, settings = self._index.snapshot(), self._index.search_settings
        found = snapshot.search(query[None], results, settings)
        exact = snapshot.search(query[None], results, settings, exact=True)
        end = self._clock()
        with self._lock:
            self._values.append(float(recalls(found, exact)[0]))
            self._next = end + (end - start) * (1 / self._budget - 1)
        return True

    def estimate(self) -> RecallEstimate | None:
        """Return the estimate of the last samples; None if there is no sample."""
        with self._lock:
            values = np.array(self._values)
        return estimate(values) if len(values) else None

    def queries(self) -> Floats:
        """Return the last sampled queries, for `tune`."""
        with self._lock:
            sampled = list(self._queries)
        return np.stack(sampled) if sampled else np.empty((0, self._index.settings.dimension), np.float32)

    def restart(self) -> None:
        """Forget the samples, after a change of the settings or of the index."""
        with self._lock:
            self._waiting.clear()
            self._values.clear()
