"""The tasks of the federation: a base model, data of each client, and held-out data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Score:
    """The result of an evaluation on held-out data."""

    loss: float
    """Mean cross-entropy, in nats for each label or byte."""
    accuracy: float
    """Share of right predictions."""


class Task(Protocol):
    """A task. Everything follows from the seed, so all ranks of a job have the same."""

    targets: tuple[str, ...]
    """Ends of the names of the layers that get adapters."""

    def base(self) -> nn.Module:
        """Return the base model, not trained yet."""
        ...

    def pretraining(self, step: int) -> Batch:
        """Return a batch for the base model."""
        ...

    def samples(self, client: int) -> int:
        """Return the number of samples of a client."""
        ...

    def batch(self, client: int, number: int, step: int, size: int) -> Batch:
        """Return a batch of a client. It depends on nothing but the arguments and the seed."""
        ...

    def held_out(self) -> Batch:
        """Return the data for evaluations."""
        ...


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return the mean cross-entropy of a batch."""
    inputs, targets = batch
    logits: Tensor = model(inputs)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


@torch.no_grad()
def score(model: nn.Module, batch: Batch) -> Score:
    """Evaluate a model."""
    inputs, targets = batch
    logits: Tensor = model(inputs).flatten(0, -2)
    flat = targets.flatten()
    right = (logits.argmax(-1) == flat).double().mean()
    return Score(float(F.cross_entropy(logits, flat)), float(right))


def pretrain(model: nn.Module, task: Task, steps: int) -> None:
    """Train the base model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        loss = loss_of(model, task.pretraining(step))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def dirichlet_parts(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[np.ndarray]:
    """Spread the numbers of samples over clients. Each label is spread by a Dirichlet distribution of its
    own. A client that would have none gets a sample of the largest.
    """
    random = np.random.default_rng((seed, 11))
    parts: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        own = random.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(random.dirichlet([alpha] * clients))[:-1]
        for part, piece in zip(parts, np.split(own, (cuts * len(own)).astype(int)), strict=True):
            part.extend(piece.tolist())
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return [np.array(sorted(part)) for part in parts]
