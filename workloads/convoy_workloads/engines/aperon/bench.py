"""Measures aperon on one thread against a search of all vectors with numpy, on patches of photos.

The control searches all grains, so its results are those of an exact search.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from convoy_workloads.bench.arms import Arm, Arms, function
from convoy_workloads.bench.comparison import Bench, Equality, Measure
from convoy_workloads.engines.aperon import blas, patches
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.settings import IndexSettings, Options, SearchSettings
from convoy_workloads.kernels.hntl_arrays import Floats

RESULTS = 10
Kind = Literal["index", "every grain", "numpy"]


def measure(kind: Kind, rows: int, queries: int) -> dict[str, Any]:
    """Search once for each query. Return the rate, the recall, and the digest of the exact results."""
    vectors, asked = patches.patches(rows, queries)
    with blas.one_thread():
        exact = _with_numpy(vectors, asked)
        started_at = time.perf_counter()
        if kind == "numpy":
            found = _with_numpy(vectors, asked)
            seconds = time.perf_counter() - started_at
        else:
            found, seconds = _with_index(vectors, asked, every=kind == "every grain")
    hits = [len(set(one) & set(other)) for one, other in zip(found.tolist(), exact.tolist(), strict=True)]
    return {
        "queries_per_second": queries / seconds,
        "recall": sum(hits) / (RESULTS * queries),
        "exact": hashlib.sha256(json.dumps(exact.tolist()).encode()).hexdigest(),
    }


def _with_numpy(vectors: Floats, asked: Floats) -> Any:
    """Return the nearest vectors of each query, one query at a time."""
    norms = np.einsum("ij,ij->i", vectors, vectors)
    found = []
    for one in asked:
        scores = norms - 2 * (vectors @ one)
        some = np.argpartition(scores, RESULTS)[:RESULTS]
        found.append(some[np.argsort(scores[some])])
    return np.array(found)


def _with_index(vectors: Floats, asked: Floats, *, every: bool) -> tuple[Any, float]:
    """Return the results of an index, one query at a time, and the seconds of all searches."""
    settings = SearchSettings(2**30, len(vectors)) if every else SearchSettings(12, 100)
    with tempfile.TemporaryDirectory(prefix="convoy-aperon-bench-") as folder:
        rows = (list(range(len(vectors))), vectors, None)
        own = IndexSettings(vectors.shape[1], id_type="uint64")
        with VectorIndex.create(Path(folder), own, rows=rows, options=Options("never")) as index:
            index.search(asked[:1], RESULTS, settings=settings)
            started_at = time.perf_counter()
            found = [index.search(one[None], RESULTS, settings=settings).ids[0] for one in asked]
            return np.array(found), time.perf_counter() - started_at


def _arm(name: str, kind: Kind, options: Mapping[str, Any]) -> Arm:
    return function(name, measure, {"kind": kind, "rows": options["rows"], "queries": options["queries"]})


def arms(options: Mapping[str, Any]) -> Arms:
    """Return the arms: an index, all vectors with numpy, the index in every grain, and numpy again as the
    control.
    """
    return Arms(
        _arm("aperon", "index", options),
        (
            _arm("all vectors with numpy", "numpy", options),
            _arm("aperon in every grain", "every grain", options),
        ),
        _arm("all vectors with numpy again", "numpy", options),
    )


BENCH = Bench(
    sizes={"small": {"rows": 2000, "queries": 20}, "full": {"rows": 60_000, "queries": 500}},
    arms=arms,
    measures=lambda options: [
        Measure(
            name=f"queries per second, {options['rows']} patches of 768 values, one thread",
            unit="1/s",
            value_of=lambda trial: float(trial.result["queries_per_second"]),
            higher_is_better=True,
            target=10.0,
        ),
        Measure(
            name=f"recall of {RESULTS} results",
            unit="ratio",
            value_of=lambda trial: float(trial.result["recall"]),
            higher_is_better=True,
            target=0.98,
        ),
    ],
    equal=(Equality(key="exact", name="the exact results"),),
)
