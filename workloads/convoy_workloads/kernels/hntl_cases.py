"""Random indexes and requests, with which the kernel `hntl_scan` is compared with its twin."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from convoy_workloads.kernels.hntl_arrays import (
    LANES,
    UNIT,
    Array,
    ExactRequest,
    Floats,
    HntlArrays,
    ScanRequest,
    blocked,
    paired,
    rounded_up,
    tiled,
)


def random_scan(rng: np.random.Generator) -> tuple[HntlArrays, ScanRequest]:
    """Return a small index with random contents, and a request."""
    dimension, grains = int(rng.integers(1, 100)), int(rng.integers(1, 19))
    turned = bool(rng.integers(2))
    frame = int(rng.integers(1, 6)) * 16 if turned else rounded_up(dimension, 16)
    dims = 4 * int(rng.integers(1, 17))
    lanes, grain_lanes = rounded_up(dims, 16), rounded_up(grains, 16)
    sizes = rng.integers(0, 70, grains)
    starts, blocks = _firsts(sizes), _firsts(-(-sizes // LANES))
    rows = int(starts[-1])
    spread = np.float32(10.0 ** rng.integers(-3, 4))
    vectors = (rng.standard_normal((rows, dimension)) * spread).astype(np.float32)
    if rows and rng.integers(2):
        vectors[rng.integers(0, rows, rows // 2)] = vectors[0]  # ties
    codes = [blocked(rng.integers(0, 256, (int(size), dims), np.uint8)) for size in sizes]
    bases = np.zeros((grains, frame, lanes))
    bases[:, :, :dims] = _columns(rng, (grains, frame, dims))
    centroids = np.zeros((frame, grain_lanes), np.float32)
    centroids[:, :grains] = rng.standard_normal((frame, grains)) * spread
    norms = np.full(grain_lanes, np.inf, np.float32)
    norms[:grains] = (centroids[:, :grains] ** 2).sum(axis=0)
    norms[:grains][rng.random(grains) < 0.1] = np.inf
    arrays = HntlArrays(
        metric=int(rng.integers(2)),
        dims=dims,
        mean=rng.standard_normal(dimension).astype(np.float32),
        rotation=tiled(_steps(_columns(rng, (dimension, frame)))) if turned else None,
        centroids=centroids,
        bases=paired(_steps(bases)),
        offsets=(rng.standard_normal((grains, lanes)) * spread).astype(np.float32),
        scales=(rng.random(grains) * spread / 30).astype(np.float32),
        starts=starts,
        blocks=blocks,
        codes=np.concatenate(codes),
        biases=(rng.random((int(blocks[-1]), LANES)) * spread**2).astype(np.float32),
        vectors=vectors,
        order=rng.permutation(rows).astype(np.uint32),
    )
    request = ScanRequest(
        queries=_queries(rng, vectors, dimension, spread),
        allowed=_allowed(rng, int(blocks[-1])) & _there(sizes),
        centroid_norms=norms,
        probes=int(rng.integers(1, grains + 3)),
        candidates=int(rng.choice([1, 7, 40, 10_000])),
        results=int(rng.integers(1, 30)),
    )
    return arrays, request


def random_exact(rng: np.random.Generator) -> ExactRequest:
    """Return a request with random rows."""
    dimension, rows = int(rng.integers(1, 100)), int(rng.integers(1, 200))
    vectors = rng.integers(-2, 3, (rows, dimension)).astype(np.float32)
    chosen = rng.integers(0, rows, int(rng.integers(0, rows + 1))) if rng.integers(2) else None
    return ExactRequest(
        queries=_queries(rng, vectors, dimension, np.float32(1)),
        vectors=vectors,
        order=rng.permutation(rows).astype(np.uint32),
        chosen=None if chosen is None else np.unique(chosen),
        metric=int(rng.integers(2)),
        results=int(rng.integers(1, 40)),
    )


def _firsts(sizes: Array) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _allowed(rng: np.random.Generator, blocks: int) -> npt.NDArray[np.uint32]:
    """Return random bits for each block, in some of them none."""
    bits = rng.integers(0, 2**32, blocks, np.uint32)
    return np.where(rng.random(blocks) < 0.2, np.uint32(0), bits)


def _there(sizes: Array) -> npt.NDArray[np.uint32]:
    """Return a bit for each row that exists, by block."""
    masks = []
    for size in map(int, sizes):
        masks += [(1 << min(LANES, size - at)) - 1 for at in range(0, size, LANES)]
    return np.array(masks, np.uint32)


def _columns(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return random matrices whose columns have length 1."""
    made = rng.standard_normal(shape)
    found: Array = made / np.linalg.norm(made, axis=-2, keepdims=True)
    return found


def _steps(matrix: Array) -> npt.NDArray[np.int16]:
    found: npt.NDArray[np.int16] = np.rint(matrix * UNIT).astype(np.int16)
    return found


def _queries(rng: np.random.Generator, vectors: Floats, dimension: int, spread: np.float32) -> Floats:
    """Return random queries. Some are rows, and one may be zero."""
    made: Floats = (rng.standard_normal((int(rng.choice([1, 2, 4, 9, 37])), dimension)) * spread).astype(
        np.float32
    )
    if len(vectors):
        made[0] = vectors[0]
    if len(made) > 1:
        made[1] = 0
    return made
