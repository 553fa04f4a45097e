"""Codes vectors with a model, and arranges them as the kernel's arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon import blas, spaces
from convoy_workloads.engines.aperon.grains import nearest_centres
from convoy_workloads.engines.aperon.model import GrainModel, Turned, fit_model
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.kernels.hntl_arrays import (
    LANES,
    UNIT,
    Floats,
    HntlArrays,
    blocked,
    paired,
    rounded_up,
    tiled,
)

MOST_GROWTH = 1.5
"""Rows of a merged segment, relative to those its model was fitted to, up to which the model may stay."""
MOST_DRIFT = 1.1
"""Residual of a merged segment, relative to the one at the fit, up to which the model may stay."""


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Rows in the order of their grains."""

    model: GrainModel
    rows: npt.NDArray[np.int64]
    """Input row of each row."""
    labels: npt.NDArray[np.int64]
    """Grain of each row."""
    codes: npt.NDArray[np.uint8]
    """[rows, dims]"""
    scales: Floats
    biases: Floats
    """Squared distances to the centres."""
    residual: float
    """Share of the squared distances that the codes do not show."""


def code(vectors: Floats, settings: IndexSettings, model: GrainModel | None = None) -> Coded:
    """Code vectors [rows, dimension] with the model if it still fits them, else with a fitted one."""
    inputs = spaces.augmented(settings.metric, vectors)
    if model is not None and model.rows / MOST_GROWTH <= len(vectors) <= model.rows * MOST_GROWTH:
        with blas.one_thread():
            found = _coded(Turned(*model.frame.turned(inputs)), model)
        if found.residual <= model.residual * MOST_DRIFT + 1e-6:
            return found
    fitted, turned = fit_model(
        inputs, settings.dimension, grains=settings.grains, dims=settings.dims, seed=settings.seed
    )
    return _coded(turned, fitted)


def _coded(turned: Turned, model: GrainModel) -> Coded:
    coordinates, outside = turned
    with blas.one_thread():
        labels, _ = nearest_centres(coordinates, model.centres)
        order = np.argsort(labels, kind="stable")
        labels = labels[order]
        codes = np.empty((len(coordinates), model.dims), np.uint8)
        scales = np.zeros(len(model.centres), np.float32)
        biases = np.empty(len(coordinates), np.float32)
        lost = 0.0
        firsts = np.searchsorted(labels, np.arange(len(model.centres) + 1))
        for grain, (first, last) in enumerate(pairwise(firsts)):
            if first == last:
                continue
            rows = order[first:last]
            centred = coordinates[rows] - model.centres[grain]
            local = centred @ (model.bases[grain].astype(np.float32) / np.float32(UNIT))
            squares = np.einsum("ij,ij->i", centred, centred) + outside[rows]
            biases[first:last] = squares
            kept = np.einsum("ij,ij->i", local, local, dtype=np.float64)
            lost += float(np.maximum(squares - kept, 0).sum())
            scale = np.float32(np.abs(local).max()) / np.float32(127)
            scales[grain] = scale
            steps = np.rint(local / scale) if scale > 0 else np.zeros_like(local)
            codes[first:last] = (np.clip(steps, -127, 127) + 128).astype(np.uint8)
    total = float(biases.sum(dtype=np.float64))
    return Coded(model, order, labels, codes, scales, biases, lost / total if total > 0 else 0.0)


def arranged(
    coded: Coded, settings: IndexSettings, vectors: Floats, order: npt.NDArray[np.uint32]
) -> HntlArrays:
    """Return the kernel's arrays. `vectors` and `order` are in the order of the coded rows."""
    model = coded.model
    grains, coordinates = model.centres.shape
    starts = np.searchsorted(coded.labels, np.arange(grains + 1)).astype(np.int64)
    sizes = np.diff(starts)
    blocks = np.concatenate([[0], np.cumsum(-(-sizes // LANES))]).astype(np.int64)
    codes = np.empty((int(blocks[-1]), model.dims // 4, LANES, 4), np.uint8)
    biases = np.zeros((int(blocks[-1]), LANES), np.float32)
    for grain in range(grains):
        own = slice(int(starts[grain]), int(starts[grain + 1]))
        codes[blocks[grain] : blocks[grain + 1]] = blocked(coded.codes[own])
        biases[blocks[grain] : blocks[grain + 1]].reshape(-1)[: sizes[grain]] = coded.biases[own]
    lanes = rounded_up(model.dims, 16)
    bases = np.zeros((grains, coordinates, lanes), np.int16)
    bases[:, :, : model.dims] = model.bases
    centroids = np.zeros((coordinates, rounded_up(grains, 16)), np.float32)
    centroids[:, :grains] = model.centres.T
    offsets = np.einsum("gc,gcd->gd", model.centres, bases.astype(np.float32)) / np.float32(UNIT)
    axes, dimension = model.frame.axes, settings.dimension
    return HntlArrays(
        metric=spaces.kernel_metric(settings.metric),
        dims=model.dims,
        mean=np.ascontiguousarray(model.frame.mean[:dimension]),
        rotation=None if axes is None else tiled(axes[:dimension]),
        centroids=centroids,
        bases=paired(bases),
        offsets=np.ascontiguousarray(offsets, np.float32),
        scales=coded.scales,
        starts=starts,
        blocks=blocks,
        codes=codes,
        biases=biases,
        vectors=vectors,
        order=order,
    )
