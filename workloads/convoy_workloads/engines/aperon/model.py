"""The fitted part of a segment: the frame, the grains' centres, and each grain's local tangent basis.

A grain's basis comes from the eigenvectors of its covariance in the frame. The frame has at most 256
coordinates, so this costs less than a randomised decomposition of the rows, and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon import blas
from convoy_workloads.engines.aperon.frame import Frame, descending_axes, fit_frame, narrowed
from convoy_workloads.engines.aperon.grains import SAMPLE_PER_GRAIN, fit_centres, grain_count, nearest_centres
from convoy_workloads.kernels.hntl_arrays import TILE, UNIT, Floats, rounded_up

KEPT = 0.9
"""Share of the rows' variance inside their grains that the local coordinates keep, if TILE allows it."""
_FEWEST_DIMS = 16
_SAMPLE = 8192


@dataclass(frozen=True, slots=True, eq=False)
class GrainModel:
    """Everything that codes rows and queries."""

    frame: Frame
    centres: Floats
    """[grains, coordinates]"""
    bases: npt.NDArray[np.int16]
    """[grains, coordinates, dims], orthonormal columns in steps of 1/16384."""
    rows: int
    """Rows that the model was fitted to."""
    residual: float
    """Share of the squared distances to the centres that the local coordinates did not keep."""

    @property
    def dims(self) -> int:
        """Return the number of local coordinates."""
        return int(self.bases.shape[2])


class Turned(NamedTuple):
    """Vectors in a frame."""

    coordinates: Floats
    outside: Floats
    """Squared lengths that the coordinates do not show."""


def fit_model(
    vectors: Floats, centred_inputs: int, *, grains: int = 0, dims: int = 0, seed: int = 0
) -> tuple[GrainModel, Turned]:
    """Fit a model to vectors [rows, inputs]. It depends on the seed, not on the number of threads.

    `centred_inputs`: the number of inputs from which the mean is subtracted. `grains`, `dims`: 0 for a choice
    by the number of rows and by the variance.
    """
    rng = np.random.default_rng(seed)
    count = grain_count(len(vectors), grains)
    with blas.one_thread():
        sample, most = vectors, max(_SAMPLE, SAMPLE_PER_GRAIN * count)
        if len(vectors) > most:
            sample = vectors[np.sort(rng.choice(len(vectors), most, replace=False))]
        frame = fit_frame(sample, rng, centred_inputs)
        coordinates, outside = frame.turned(sample)
        centres = fit_centres(coordinates, count, rng)
        labels, _ = nearest_centres(coordinates, centres)
        squares = np.square(coordinates - centres[labels]).sum(axis=0, dtype=np.float64)
        frame = narrowed(frame, squares, float(outside.sum(dtype=np.float64)))
        turned = Turned(*frame.turned(vectors))
        centres = np.ascontiguousarray(centres[:, : frame.coordinates])
        labels, _ = nearest_centres(turned.coordinates, centres)
        order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=count)
        members = [one for one in np.split(order, np.cumsum(sizes)[:-1]) if len(one)]
        return _fitted(frame, turned, members, dims), turned


def _fitted(frame: Frame, turned: Turned, members: list[npt.NDArray[np.int64]], dims: int) -> GrainModel:
    """Return the model of grains with these members."""
    centres = np.empty((len(members), frame.coordinates), np.float32)
    spectrum = np.zeros(frame.coordinates)
    axes = np.empty((len(members), frame.coordinates, min(TILE, frame.coordinates)), np.float32)
    for grain, rows in enumerate(members):
        part = turned.coordinates[rows]
        centres[grain] = part.mean(axis=0, dtype=np.float64)
        centred = part - centres[grain]
        values, vectors = descending_axes(centred.T @ centred)
        spectrum += np.maximum(values, 0)
        axes[grain] = vectors[:, : axes.shape[2]]
    total = float(spectrum.sum()) + float(turned.outside.sum(dtype=np.float64))
    kept = np.cumsum(spectrum) / max(total, 1e-30)
    count = dims or _dims(kept, frame.coordinates)
    there = min(count, frame.coordinates)
    bases = np.zeros((len(members), frame.coordinates, count), np.int16)
    bases[:, :, :there] = np.rint(axes[:, :, :there] * UNIT)
    residual = 1 - float(kept[there - 1]) if total > 0 else 0.0
    return GrainModel(frame, centres, bases, sum(map(len, members)), residual)


def _dims(kept: npt.NDArray[np.float64], most: int) -> int:
    needed = int(np.searchsorted(kept, KEPT)) + 1
    return max(min(rounded_up(needed, 4), TILE, most), min(_FEWEST_DIMS, most))
