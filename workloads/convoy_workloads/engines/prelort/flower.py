"""The rule FedAvg of the package Flower, as a peer. Its clients must have one rank, so smaller ones are
padded.

Flower's dependencies exclude those of Convoy, so no extra installs it. The bench installs it into a folder of
its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from convoy_workloads.federated.levels import Factors, Levels
from convoy_workloads.federated.update import Update

REQUIREMENTS = ("flwr==1.42.0", "iterators==0.2.0", "pycryptodome==4.4.0")
"""Requirements of pip, without their dependencies."""


def installed() -> bool:
    """Return True if Flower can be imported."""
    try:
        importlib.import_module("flwr.server.strategy.aggregate")
    except ImportError:
        return False
    return True


def fedavg(levels: Levels, before: Factors, updates: Sequence[Update]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the mean that Flower computes of adapters that are padded with zeros."""
    aggregate: Any = importlib.import_module("flwr.server.strategy.aggregate").aggregate
    arrays = []
    for update in sorted(updates, key=lambda one: one.client):
        own = []
        for name, (a, b) in before.items():
            padded_a, padded_b = torch.zeros_like(a), torch.zeros_like(b)
            padded_a[: update.rank], padded_b[:, : update.rank] = update.factors[name]
            own += [padded_a.numpy(), padded_b.numpy()]
        arrays.append((own, update.samples))
    made = [torch.from_numpy(one) for one in aggregate(arrays)]
    return dict(zip(before, zip(made[::2], made[1::2], strict=True), strict=True))
