"""The training data: a matrix of features with an intercept, and targets for the loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from convoy_workloads.engines.casgd.params import Params
from convoy_workloads.optim.losses import LossName
from convoy_workloads.runtime import DataError

NOISE = 0.05
"""Standard deviation of generated targets of the linear loss."""


@dataclass(frozen=True)
class Problem:
    """Rows to train on. The features are in float64."""

    features: Tensor
    targets: Tensor


def load(params: Params) -> Problem:
    """Return the data that the parameters name, on all ranks the same. Raises DataError for unusable data."""
    if params.data == "synth":
        return synth(params.loss, params.rows, params.features, params.seed)
    if params.data == "file":
        return from_file(Path(params.file), params.loss)
    return _bundled(params.data, params.loss)


def columns_of(rank: int, world: int, columns: int, partition: str) -> slice:
    """Return the columns of a rank. Raises DataError if a rank would have none."""
    if columns < world:
        raise DataError(
            f"the data have {columns} columns, the intercept included, fewer than the {world} ranks: "
            f"use at most {columns} ranks"
        )
    if partition == "striped":
        return slice(rank, None, world)
    return slice(rank * columns // world, (rank + 1) * columns // world)


def batch(seed: int, iteration: int, rows: int, size: int) -> Tensor:
    """Return the row numbers of an iteration. They depend on nothing but the arguments, so all ranks, and all
    values of s, see the same batches.
    """
    return torch.from_numpy(np.random.default_rng((seed, iteration)).integers(0, rows, size))


def synth(loss: LossName, rows: int, columns: int, seed: int, signs: bool = False) -> Problem:
    """Return normal features, or random signs, and targets that follow the model of the loss."""
    random = np.random.default_rng((seed, 2**32))
    features = random.standard_normal((rows, columns))
    if signs:
        features = np.where(features < 0, -1.0, 1.0)
    margins = features @ (random.standard_normal(columns) / columns**0.5)
    if loss == "logistic":
        targets = (random.random(rows) < 1 / (1 + np.exp(-3 * margins))).astype(float)
    elif loss == "poisson":
        targets = random.poisson(np.exp(margins)).astype(float)
    else:
        targets = margins + NOISE * random.standard_normal(rows)
    return Problem(with_intercept(features), torch.from_numpy(targets))


def from_file(path: Path, loss: LossName) -> Problem:
    """Read a file in libsvm's text format. Labels -1 and 1 become 0 and 1 for the logistic loss."""
    from sklearn.datasets import load_svmlight_file  # noqa: PLC0415 - bundled data and files alone need it

    try:
        features, targets = load_svmlight_file(str(path))
        dense = features.toarray()
    except (OSError, ValueError) as error:
        raise DataError(f"params.file: {path} cannot be read as libsvm's text format: {error}") from error
    if not dense.size or not np.isfinite(dense).all() or not np.isfinite(targets).all():
        raise DataError(f"params.file: {path} has no rows or columns, or values that are not finite")
    if loss == "logistic" and set(np.unique(targets)) <= {-1.0, 1.0}:
        targets = (targets + 1) / 2
    return Problem(with_intercept(standardised(dense)), torch.from_numpy(targets))


def _bundled(name: str, loss: LossName) -> Problem:
    from sklearn.datasets import load_breast_cancer, load_digits  # noqa: PLC0415

    features, targets = (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
    targets = np.asarray(targets, dtype=float)
    if name == "digits" and loss == "logistic":
        targets = (targets >= 5).astype(float)
    return Problem(with_intercept(standardised(features)), torch.from_numpy(targets))


def standardised(features: np.ndarray) -> np.ndarray:
    """Return the columns with mean 0 and variance 1, divided by the root of their number, so that rows have a
    length of about 1. Constant columns become 0.
    """
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(scaled / features.shape[1] ** 0.5)


def with_intercept(features: np.ndarray) -> Tensor:
    """Return the features with a last column of ones."""
    return torch.from_numpy(np.concatenate([features, np.ones((len(features), 1))], axis=1))
