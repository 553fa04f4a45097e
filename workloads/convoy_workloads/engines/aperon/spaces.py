"""The metrics. Each becomes a search by Euclidean distance.

| metric | stored | searched | distance of a result |
|---|---|---|---|
| l2 | x | x | squared Euclidean distance, as faiss and hnswlib give it |
| cosine | x / norm(x) | x / norm(x) | 1 - cosine, half of the squared distance |
| ip | x | (x, sqrt(M^2 - norm(x)^2)) | minus the inner product, so that smaller is nearer |

For `ip`, M is the largest norm of a segment, and a query gets a zero as its last input. The squared
distance is then norm(q)^2 + M^2 - 2 q.x, in the order of the inner products. The last input exists only while
a segment is built; exact distances are inner products of the stored vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.settings import Metric
from convoy_workloads.kernels.hntl_arrays import L2, NEGATIVE_IP, Floats

LARGEST_COMPONENT = 1e12
"""Largest magnitude of a component. The squared distance of two such vectors fits into fp32."""
SMALLEST_NORM = 1e-15
"""Smallest norm of a vector under cosine. Smaller vectors have no direction in fp32."""


def checked_vectors(name: str, values: Any, dimension: int, metric: Metric) -> Floats:
    """Return vectors [n, dimension] as they are stored and searched. Raises InvalidInput, with the path of
    the invalid field.
    """
    try:
        found = np.array(values, dtype=np.float32, order="C", ndmin=2)
    except OverflowError as error:  # A whole number of more than 308 digits.
        raise InvalidInput(name, f"a number is larger than {LARGEST_COMPONENT:g}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            name, _ragged(name, values, dimension) or "not numbers in rows of one length"
        ) from error
    if found.ndim != 2:
        raise InvalidInput(name, f"{found.ndim} dimensions instead of a list of vectors")
    if found.shape[1] != dimension:
        raise InvalidInput(
            f"{name}[0]" if len(found) else name, f"dimension {found.shape[1]} instead of {dimension}"
        )
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(found) <= LARGEST_COMPONENT)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        problem = f"{found[row, column]} is not finite, or larger than {LARGEST_COMPONENT:g}"
        raise InvalidInput(f"{name}[{row}][{column}]", problem)
    return _unit(name, found) if metric == "cosine" else found


def _unit(name: str, vectors: Floats) -> Floats:
    """Return vectors of length 1."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    small = np.flatnonzero(norms < SMALLEST_NORM)
    if len(small):
        raise InvalidInput(
            f"{name}[{small[0]}]", "its norm is zero, so it has no direction for metric cosine"
        )
    unit: Floats = (vectors / norms[:, None]).astype(np.float32)
    return unit


def _ragged(name: str, values: Any, dimension: int) -> str:
    """Return the first vector of another length, in words."""
    try:
        lengths = [len(one) for one in values]
    except TypeError:
        return ""
    wrong = next((i for i, length in enumerate(lengths) if length != dimension), None)
    return "" if wrong is None else f"vector {wrong} has dimension {lengths[wrong]} instead of {dimension}"


def kernel_metric(metric: Metric) -> int:
    """Return the kernel's code of the metric."""
    return NEGATIVE_IP if metric == "ip" else L2


def augmented(metric: Metric, vectors: Floats) -> Floats:
    """Return the vectors whose Euclidean distances order them as the metric does."""
    if metric != "ip":
        return vectors
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    last = np.sqrt(squares.max(initial=0) - squares).astype(np.float32)
    return np.concatenate([vectors, last[:, None]], axis=1)


def reported(metric: Metric, distances: Floats) -> Floats:
    """Return the distances of results from those of the kernel."""
    return distances * np.float32(0.5) if metric == "cosine" else distances
