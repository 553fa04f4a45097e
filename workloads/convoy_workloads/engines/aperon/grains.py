"""Grains: the clusters of k-means in the frame's coordinates.

Own Lloyd iterations in numpy, because the serving image has no scikit-learn. Each distance matrix has rows of
the sample and columns of the centres, so one iteration is one matrix product.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from convoy_workloads.kernels.hntl_arrays import Floats

ROWS_PER_GRAIN = 1000
SAMPLE_PER_GRAIN = 128
"""Rows of the sample for each centre. faiss trains with at most 256."""
_ITERATIONS = 10
_ROWS_AT_ONCE = 8192


def grain_count(rows: int, wanted: int) -> int:
    """Return the number of grains for so many rows. `wanted` 0: one for each 1000 rows."""
    return max(1, min(rows, wanted or round(rows / ROWS_PER_GRAIN)))


def fit_centres(sample: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Return the centres of k-means [count, coordinates].

    The seeds are rows drawn evenly. Seeds by k-means++ prefer outliers: on the patches of the bench, grains
    then had very unequal sizes, and a search of equal recall scanned twice the rows.
    """
    centres = sample[np.sort(rng.choice(len(sample), count, replace=False))]
    for _ in range(_ITERATIONS):
        labels, distances = nearest_centres(sample, centres)
        centres = _means(sample, labels, distances, count)
    return centres


def nearest_centres(coordinates: Floats, centres: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return each row's nearest centre, and the squared distance to it. The first of equal centres wins."""
    norms = np.einsum("ij,ij->i", centres, centres)
    labels = np.empty(len(coordinates), np.int64)
    distances = np.empty(len(coordinates), np.float32)
    for at in range(0, len(coordinates), _ROWS_AT_ONCE):
        part = coordinates[at : at + _ROWS_AT_ONCE]
        found = norms - 2 * (part @ centres.T)
        best = found.argmin(axis=1)
        labels[at : at + len(part)] = best
        own = np.einsum("ij,ij->i", part, part)
        distances[at : at + len(part)] = np.maximum(found[np.arange(len(part)), best] + own, 0)
    return labels, distances


def _means(sample: Floats, labels: npt.NDArray[np.int64], distances: Floats, count: int) -> Floats:
    """Return the means of the clusters. A cluster without rows gets the row that is farthest from its centre,
    the next one the second farthest.
    """
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=count)
    there = np.flatnonzero(sizes)
    firsts = (np.cumsum(sizes) - sizes)[there]
    centres = np.empty((count, sample.shape[1]), np.float32)
    sums = np.add.reduceat(sample[order].astype(np.float64), firsts, axis=0)
    centres[there] = sums / sizes[there, None]
    empty = np.flatnonzero(sizes == 0)
    centres[empty] = sample[np.argsort(-distances, kind="stable")[: len(empty)]]
    return centres
