"""Handwritten digits: the base model knows 0 to 4, the clients have all ten."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from convoy_workloads.engines.prelort.params import Params
from convoy_workloads.engines.prelort.tasks import Batch, dirichlet_parts

HIDDEN = 64


class Digits:
    """The task `digits`: classify the handwritten digits of scikit-learn."""

    targets: tuple[str, ...] = ()

    def __init__(self, params: Params) -> None:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - only this task needs it

        images, labels = load_digits(return_X_y=True)
        self._images = torch.tensor(images / 16.0, dtype=torch.float32)
        self._labels = torch.tensor(labels, dtype=torch.long)
        self._seed = params.seed
        order = np.random.default_rng((params.seed, 10)).permutation(len(labels))
        self._test, train = order[: len(order) // 4], order[len(order) // 4 :]
        self._known = train[labels[train] < 5]
        parts = dirichlet_parts(labels[train], len(params.clients), params.alpha, params.seed)
        self._parts = [train[part] for part in parts]

    def base(self) -> nn.Module:
        """Return a classifier with two hidden layers."""
        torch.manual_seed(self._seed)
        return nn.Sequential(
            nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)
        )

    def pretraining(self, step: int) -> Batch:
        """Return images of the digits 0 to 4."""
        return self._rows(np.random.default_rng((self._seed, 12, step)).choice(self._known, 64))

    def samples(self, client: int) -> int:
        """Return the number of images of a client."""
        return len(self._parts[client])

    def batch(self, client: int, number: int, step: int, size: int) -> Batch:
        """Return images of a client."""
        random = np.random.default_rng((self._seed, 13, client, number, step))
        return self._rows(random.choice(self._parts[client], size))

    def held_out(self) -> Batch:
        """Return the quarter of the images that nobody trains on."""
        return self._rows(self._test)

    def _rows(self, rows: np.ndarray) -> Batch:
        return self._images[rows], self._labels[rows]
