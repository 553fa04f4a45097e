"""The numpy twin of the kernel `hntl_scan`: its oracle, and its replacement where nothing can be compiled.

The twin gives the kernel's bits. Integer products are exact in float64 or float32, because they stay below
2^53 and 2^24. Sums of fp32 numbers are added in the kernel's order, one rounding at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from convoy_workloads.kernels.hntl_arrays import (
    L2,
    LANES,
    UNIT,
    Array,
    ExactRequest,
    Floats,
    Found,
    HntlArrays,
    ScanRequest,
    check_exact,
    check_scan,
    unblocked,
    unpaired,
    untiled,
)

_LARGEST, _LONGEST, _SMALLEST = np.float32(32767), np.float32(65000), np.float32(1e-30)
_STEP = np.float32(1 / UNIT)
_ROWS_AT_ONCE = 4096


def lane_sum(values: Floats) -> Floats:
    """Return sums over the last axis: 32 partial sums, which are added in halves."""
    pad = -values.shape[-1] % LANES
    if pad:
        values = np.concatenate([values, np.zeros((*values.shape[:-1], pad), np.float32)], axis=-1)
    steps = values.reshape(*values.shape[:-1], -1, LANES)
    lanes = np.zeros((*values.shape[:-1], LANES), np.float32)
    for at in range(steps.shape[-2]):
        lanes = lanes + steps[..., at, :]
    half = LANES // 2
    while half:
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
        half //= 2
    found: Floats = lanes[..., 0]
    return found


def distances(metric: int, queries: Floats, vectors: Floats) -> Floats:
    """Return the distances of each query to the vectors [rows, dimension]."""
    found = np.empty((len(queries), len(vectors)), np.float32)
    for at in range(0, len(vectors), _ROWS_AT_ONCE):
        part = vectors[at : at + _ROWS_AT_ONCE]
        for item, query in enumerate(queries):
            if metric == L2:
                difference = query - part
                found[item, at : at + len(part)] = lane_sum(difference * difference)
            else:
                found[item, at : at + len(part)] = np.float32(0) - lane_sum(query * part)
    return found


def quantised(values: Floats) -> tuple[Array, Floats]:
    """Return values [items, size] as whole numbers, and the inverse scales in steps of a matrix entry."""
    largest = np.abs(values).max(axis=-1, initial=0)
    used = largest > _SMALLEST
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        length = np.sqrt(lane_sum(values * values))
        scales = np.where(used, np.minimum(_LARGEST / largest, _LONGEST / length), np.float32(0))
        inverse = np.where(used, np.float32(1) / scales, np.float32(0)) * _STEP
    return np.rint(values * scales[:, None]).astype(np.float64), inverse.astype(np.float32)


def exact(request: ExactRequest) -> Found:
    """Return the nearest of the chosen rows."""
    check_exact(request)
    count = len(request.vectors)
    chosen = np.arange(count) if request.chosen is None else request.chosen
    found = _nothing(len(request.queries), request.results)
    found.scanned[:] = len(chosen)
    for item in range(len(request.queries)):
        measured = distances(request.metric, request.queries[item : item + 1], request.vectors[chosen])[0]
        _write(found, item, measured, chosen, request.order)
    return found


def scan(arrays: HntlArrays, request: ScanRequest) -> Found:
    """Return the nearest rows among the best candidates of the probed grains."""
    check_scan(arrays, request)
    coordinates, lengths = _coordinates(arrays, request.queries)
    inputs, inverse = quantised(coordinates)
    to_grains = _to_grains(arrays, request, coordinates, lengths)
    found = _nothing(len(request.queries), request.results)
    for item in range(len(request.queries)):
        finite = np.flatnonzero(to_grains[item] < np.inf)
        nearest = finite[np.argsort(to_grains[item, finite], kind="stable")][: request.probes]
        keys = [np.empty(0, np.uint64)]
        for grain in nearest:
            one = (inputs[item], inverse[item], to_grains[item, grain])
            keys.append(_grain_keys(arrays, request.allowed, int(grain), one))
            found.scanned[item] += arrays.starts[grain + 1] - arrays.starts[grain]
        best = np.sort(np.concatenate(keys))[: request.candidates]
        rows = (best & np.uint64(0xFFFFFFFF)).astype(np.int64)
        measured = distances(arrays.metric, request.queries[item : item + 1], arrays.vectors[rows])[0]
        _write(found, item, measured, rows, arrays.order)
    return found


def _coordinates(arrays: HntlArrays, queries: Floats) -> tuple[Floats, Floats]:
    """Return the queries in the frame, and their squared lengths after the mean is subtracted."""
    centred = queries - arrays.mean
    lengths = lane_sum(centred * centred)
    if arrays.rotation is None:
        padded = np.zeros((len(queries), arrays.frame), np.float32)
        padded[:, : arrays.dimension] = centred
        return padded, lengths
    inputs, inverse = quantised(centred)
    matrix = untiled(arrays.rotation, arrays.frame)[: arrays.dimension].astype(np.float64)
    return (inputs @ matrix).astype(np.float32) * inverse[:, None], lengths


def _to_grains(arrays: HntlArrays, request: ScanRequest, coordinates: Floats, lengths: Floats) -> Floats:
    """Return the squared distances of the queries to the grains' centres."""
    sums = np.zeros((len(coordinates), arrays.centroids.shape[1]), np.float32)
    for at in range(arrays.frame):
        sums = sums + coordinates[:, at : at + 1] * arrays.centroids[at]
    found = (request.centroid_norms + lengths[:, None]) - np.float32(2) * sums
    return found[:, : arrays.grains]


def _grain_keys(
    arrays: HntlArrays, allowed: npt.NDArray[np.uint32], grain: int, query: tuple[Array, Array, Array]
) -> npt.NDArray[np.uint64]:
    """Return keys of a grain's allowed rows that order them by score, then by row."""
    inputs, inverse, constant = query
    dims = arrays.dims
    products = inputs @ unpaired(arrays.bases[grain])[:, :dims].astype(np.float64)
    values = products.astype(np.float32) * inverse - arrays.offsets[grain, :dims]
    largest = np.abs(values).max()
    scale, factor = np.float32(0), np.float32(0)
    if largest > _SMALLEST:
        scale = np.float32(127) / largest
        factor = (np.float32(-2) / scale) * arrays.scales[grain]
    codes = np.rint(values * scale).astype(np.float32)
    first, last = int(arrays.blocks[grain]), int(arrays.blocks[grain + 1])
    rows = int(arrays.starts[grain + 1] - arrays.starts[grain])
    sums = (unblocked(arrays.codes[first:last]).astype(np.float32) - np.float32(128)) @ codes
    scores = (sums[:rows] * factor + arrays.biases[first:last].reshape(-1)[:rows]) + constant
    lanes = np.arange(rows)
    there = (allowed[first + lanes // LANES] >> (lanes % LANES).astype(np.uint32)) & 1 != 0
    return sort_keys(scores[there], arrays.starts[grain] + lanes[there])


def sort_keys(scores: Floats, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return numbers with the order of (score, row)."""
    bits = np.ascontiguousarray(scores).view(np.uint32)
    ordered = np.where(bits & 0x80000000, ~bits, bits | 0x80000000).astype(np.uint64)
    found: npt.NDArray[np.uint64] = (ordered << np.uint64(32)) | rows.astype(np.uint64)
    return found


def _nothing(items: int, results: int) -> Found:
    return Found(
        np.full((items, results), np.inf, np.float32),
        np.full((items, results), -1, np.int64),
        np.zeros(items, np.int64),
    )


def _write(found: Found, item: int, measured: Floats, rows: Array, order: npt.NDArray[np.uint32]) -> None:
    """Write the nearest rows of one query."""
    best = np.lexsort((order[rows], measured))[: found.rows.shape[1]]
    found.distances[item, : len(best)] = measured[best]
    found.rows[item, : len(best)] = rows[best]
