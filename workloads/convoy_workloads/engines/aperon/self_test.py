"""The self-test: the kernel computes what its twin computes, and a small index finds what an exact search
finds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.settings import IndexSettings, Metric, Options, SearchSettings
from convoy_workloads.kernels.hntl_arrays import Floats
from convoy_workloads.serving.protocol import SelfTestFailed

ROWS, DIMENSION, QUERIES, RESULTS = 300, 12, 8, 10
TOLERANCE = 1e-4
_EVERY = SearchSettings(2**30, ROWS)


def run(metric: Metric, kernel: str = "auto") -> None:
    """Test this machine. Raises SelfTestFailed for a wrong result."""
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((ROWS, DIMENSION), np.float32)
    queries = rng.standard_normal((QUERIES, DIMENSION), np.float32)
    settings = IndexSettings(DIMENSION, metric, "uint64", grains=6, dims=4)
    found = {}
    for name in dict.fromkeys((kernel, "twin")):
        with tempfile.TemporaryDirectory(prefix="convoy-aperon-test-") as folder:
            rows = (list(range(ROWS)), vectors, None)
            options = Options("never", kernel=name)
            with VectorIndex.create(Path(folder), settings, rows=rows, options=options) as index:
                some = index.search(queries, RESULTS, settings=SearchSettings(2, 20))
                every = index.search(queries, RESULTS, settings=_EVERY)
                found[name] = (some.ids, every.ids)
                _compare(metric, vectors, queries, every.distances)
    if len(set(map(repr, found.values()))) != 1:
        raise SelfTestFailed("the kernel's results differ from those of its twin: this machine is faulty")


def _compare(metric: Metric, vectors: Floats, queries: Floats, found: Floats) -> None:
    """Compare the distances of a search in all grains with exact ones."""
    exact = np.sort(distances(metric, vectors, queries), axis=1)[:, :RESULTS]
    if not np.allclose(found, exact, rtol=TOLERANCE, atol=TOLERANCE):
        raise SelfTestFailed("a search in all grains differs from exact distances: this machine is faulty")


def distances(metric: Metric, vectors: Floats, queries: Floats) -> Floats:
    """Return the distance of each query to each vector."""
    wide, asked = vectors.astype(np.float64), queries.astype(np.float64)
    if metric == "l2":
        found = np.square(asked[:, None] - wide[None]).sum(axis=2)
    elif metric == "ip":
        found = -asked @ wide.T
    else:
        norms = np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(wide, axis=1)[None]
        found = 1 - asked @ wide.T / norms
    return np.asarray(found, np.float32)
