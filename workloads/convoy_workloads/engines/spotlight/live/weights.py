"""Weights of a policy as one vector, so that all workers of a node can share one copy of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.live.worker import WeightsGone

KEPT = 2
"""Versions that the driver and each worker keep."""


def vector_of(policy: Policy) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a copy of the weights."""
    found = torch.cat([one.detach().reshape(-1) for one in policy.parameters()])
    array: np.ndarray[Any, np.dtype[np.float32]] = found.to(torch.float32).numpy()
    return array


def use(policy: Policy, vector: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    """Make `vector` the weights of the policy. They are not copied, so they may lie in shared memory."""
    with warnings.catch_warnings():
        # Shared memory of Ray is read-only, of which torch warns. A worker never writes to weights.
        warnings.simplefilter("ignore")
        flat = torch.from_numpy(vector)
    start = 0
    for one in policy.parameters():
        one.requires_grad_(False)
        one.data = flat[start : start + one.numel()].view(one.shape)
        start += one.numel()
    if start != len(vector):
        raise ValueError(f"the weights have {len(vector)} values, but the policy has {start}")


class Policies:
    """The policies of the last versions on a worker."""

    def __init__(self, build: Callable[[], Policy], fetch: Callable[[int], Any]) -> None:
        """`build` returns a policy with any weights. `fetch` returns the vector of a version, or None."""
        self._build = build
        self._fetch = fetch
        self._known: dict[int, Policy] = {}

    def of(self, version: int) -> Policy:
        """Return the policy with the weights of a version. Raises WeightsGone if they cannot be had."""
        if version not in self._known:
            vector = self._fetch(version)
            if vector is None:
                raise WeightsGone(version)
            policy = self._build()
            use(policy, vector)
            self._known[version] = policy
            for old in sorted(self._known)[:-KEPT]:
                del self._known[old]
        return self._known[version]
