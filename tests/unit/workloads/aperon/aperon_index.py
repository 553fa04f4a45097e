"""Small indexes for the tests of aperon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.settings import IndexSettings, Options
from convoy_workloads.kernels.hntl_arrays import Floats

QUICK = Options(fsync="never", flush_rows=100, most_segments=3)


def clustered(rows: int, dimension: int, seed: int = 0) -> Floats:
    """Return vectors around a few centres, close to planes of low dimension."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.standard_normal((8, dimension))
    planes = rng.standard_normal((8, 6, dimension))
    owners = rng.integers(0, 8, rows)
    inner = np.einsum("rk,rkd->rd", rng.standard_normal((rows, 6)), planes[owners])
    found: Floats = (centres[owners] + inner + 0.2 * rng.standard_normal((rows, dimension))).astype(
        np.float32
    )
    return found


def names(rows: int) -> list[str]:
    """Return ids whose order is not that of the rows."""
    return [
        f"id-{(row * 7919) % rows}" if np.gcd(7919, rows) == 1 else f"id-{rows - row}" for row in range(rows)
    ]


def made(folder: Path, vectors: Floats, *, options: Options = QUICK, **settings: Any) -> VectorIndex:
    """Return an index with one segment of these vectors."""
    own = IndexSettings(vectors.shape[1], **settings)
    numbers = own.id_type == "uint64"
    ids = list(range(len(vectors))) if numbers else names(len(vectors))
    return VectorIndex.create(folder, own, rows=(ids, vectors, None), options=options)
