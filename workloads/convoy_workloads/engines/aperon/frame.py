"""The frame: global coordinates, in which grains are found, and from which vectors are projected into them.

A query is turned into the frame once. Ranking grains and projecting into their bases then reads `frame`
coordinates of a basis vector instead of `dimension`: at 768 inputs, 128 coordinates and 8 grains, 0.3 MB
instead of 1.2 MB (int16).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from convoy_workloads.kernels.hntl_arrays import UNIT, Floats, rounded_up

KEPT = 0.9
"""Share of the variance inside grains that the frame keeps, if MOST_COORDINATES allow it. The variance
between grains does not count: in real data a few coordinates hold most of it.
"""
MOST_COORDINATES = 256
UNTURNED = 64
"""Inputs up to which the frame's coordinates are the inputs."""
_FEWEST_COORDINATES = 32
_EXACT_INPUTS = 1024
"""Inputs up to which the principal axes come from the whole covariance matrix."""
_OVERSAMPLING = 16
_POWER_ITERATIONS = 3
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """An affine map of vectors to global coordinates."""

    mean: Floats
    """[inputs]"""
    axes: npt.NDArray[np.int16] | None
    """[inputs, coordinates], orthonormal columns in steps of 1/16384; None: the inputs stay as they are."""
    coordinates: int
    """A multiple of 16."""

    def turned(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Return coordinates [rows, coordinates], and the squared lengths that they do not show [rows]."""
        found = np.zeros((len(vectors), self.coordinates), np.float32)
        outside = np.zeros(len(vectors), np.float32)
        axes = None if self.axes is None else self.axes.astype(np.float32) / np.float32(UNIT)
        for at in range(0, len(vectors), _ROWS_AT_ONCE):
            centred = vectors[at : at + _ROWS_AT_ONCE] - self.mean
            if axes is None:
                found[at : at + len(centred), : centred.shape[1]] = centred
                continue
            part = centred @ axes
            found[at : at + len(centred)] = part
            whole = np.einsum("ij,ij->i", centred, centred)
            outside[at : at + len(centred)] = np.maximum(whole - np.einsum("ij,ij->i", part, part), 0)
        return found, outside


def fit_frame(sample: Floats, rng: np.random.Generator, centred_inputs: int) -> Frame:
    """Return the frame of the principal axes, as wide as allowed.

    The mean of the inputs from `centred_inputs` on is zero.
    """
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    mean[centred_inputs:] = 0
    inputs = sample.shape[1]
    if inputs <= UNTURNED:
        return Frame(mean, None, rounded_up(inputs, 16))
    axes = _principal_axes(sample - mean, rng)
    count = min(MOST_COORDINATES, rounded_up(inputs, 16))
    matrix = np.zeros((inputs, count))
    there = min(count, axes.shape[1])
    matrix[:, :there] = axes[:, :there]
    return Frame(mean, np.rint(matrix * UNIT).astype(np.int16), count)


def narrowed(frame: Frame, squares: npt.NDArray[np.float64], outside: float) -> Frame:
    """Return the frame with the first coordinates, as many as keep enough variance.

    `squares`: sums of squares inside grains, by coordinate. `outside`: those of all other directions.
    """
    if frame.axes is None:
        return frame
    kept = np.cumsum(squares) / max(float(squares.sum()) + outside, 1e-30)
    count = rounded_up(max(int(np.searchsorted(kept, KEPT)) + 1, _FEWEST_COORDINATES), 16)
    if count >= frame.coordinates:
        return frame
    return Frame(frame.mean, np.ascontiguousarray(frame.axes[:, :count]), count)


def _principal_axes(centred: Floats, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the axes [inputs, axes], those of the largest variance first."""
    inputs = centred.shape[1]
    if inputs <= _EXACT_INPUTS:
        return descending_axes(centred.T @ centred)[1]
    guess = rng.standard_normal((inputs, MOST_COORDINATES + _OVERSAMPLING)).astype(np.float32)
    for _ in range(_POWER_ITERATIONS):
        guess, _ = np.linalg.qr(centred.T @ (centred @ guess))
    inner = centred @ guess
    found: npt.NDArray[np.float64] = guess.astype(np.float64) @ descending_axes(inner.T @ inner)[1]
    return found


def descending_axes(matrix: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the eigenvalues of a symmetric matrix, the largest first, and the eigenvectors as columns.

    The largest component of each eigenvector is positive, because its sign is arbitrary.
    """
    values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    values, vectors = values[::-1], vectors[:, ::-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
    return values, vectors * np.where(signs == 0, 1, signs)
