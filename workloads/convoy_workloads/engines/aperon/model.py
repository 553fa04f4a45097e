"""The fitted part of a segment: the frame, the grains' centres, and each grain's local tangent basis.

A grain's basis comes from the eigenvectors of its covariance in the frame. The frame has at most 256
coordinates, so this costs less than a randomised decomposition of the rows, and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon import blas
from convoy_workloads.engines.aperon.frame import Frame, descending_axes, fit_frame
from convoy_workloads.engines.aperon.grains import fit_centres, grain_count, nearest_centres
from convoy_workloads.kernels.hntl_arrays import TILE, UNIT, Floats, rounded_up

KEPT = 0.9
"""Share of the rows' variance inside their grains that the local coordinates keep, if TILE allows it."""
_FEWEST_DIMS = 16


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


def fit_model(
    vectors: Floats, centred_inputs: int, *, grains: int = 0, dims: int = 0, seed: int = 0
) -> GrainModel:
    """Fit a model to vectors [rows, inputs]. It depends on the seed, not on the number of threads.

    `centred_inputs`: the number of inputs from which the mean is subtracted. `grains`, `dims`: 0 for a choice
    by the number of rows and by the variance.
    """
    rng = np.random.default_rng(seed)
    with blas.one_thread():
        frame = fit_frame(vectors, rng, centred_inputs)
        coordinates, outside = frame.turned(vectors)
        centres = fit_centres(coordinates, grain_count(len(vectors), grains), rng)
        labels, _ = nearest_centres(coordinates, centres)
        order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels, minlength=len(centres))
        parts = [part for part in np.split(coordinates[order], np.cumsum(sizes)[:-1]) if len(part)]
        return _fitted(frame, parts, float(outside.sum(dtype=np.float64)), dims)


def _fitted(frame: Frame, parts: list[Floats], outside: float, dims: int) -> GrainModel:
    """Return the model of grains with these rows."""
    centres = np.stack([part.mean(axis=0, dtype=np.float64) for part in parts]).astype(np.float32)
    spectra, axes = [], []
    for part, centre in zip(parts, centres, strict=True):
        centred = part - centre
        values, vectors = descending_axes(centred.T @ centred)
        spectra.append(np.maximum(values, 0))
        axes.append(vectors)
    spectrum = np.sum(spectra, axis=0)
    total = float(spectrum.sum()) + outside
    kept = np.cumsum(spectrum) / max(total, 1e-30)
    count = dims or _dims(kept, frame.coordinates)
    bases = np.zeros((len(parts), frame.coordinates, count))
    there = min(count, frame.coordinates)
    bases[:, :, :there] = np.stack(axes)[:, :, :there]
    residual = 1 - float(kept[there - 1]) if total > 0 else 0.0
    rows = sum(map(len, parts))
    return GrainModel(frame, centres, np.rint(bases * UNIT).astype(np.int16), rows, residual)


def _dims(kept: npt.NDArray[np.float64], most: int) -> int:
    needed = int(np.searchsorted(kept, KEPT)) + 1
    return max(min(rounded_up(needed, 4), TILE, most), min(_FEWEST_DIMS, most))
