"""The interface between the loop and its workers, which may be simulated nodes or actors of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from convoy_workloads.engines.spotlight.learning.grpo import Scored, UpdateReport
from convoy_workloads.engines.spotlight.learning.noise import NoiseKey
from convoy_workloads.engines.spotlight.learning.policy import Policy
from convoy_workloads.engines.spotlight.learning.sampler import Trajectory
from convoy_workloads.engines.spotlight.params import Selection
from convoy_workloads.spot.ledger.request import Payload, Request, RequestKind


@dataclass(frozen=True, slots=True)
class Finished:
    """A request whose first result has arrived. The ledger holds the result."""

    request: Request
    reward: float


class Training(Protocol):
    """One update of the policy, which may take place beside the workers."""

    @property
    def predicted_end(self) -> float:
        """Return the time at which the update will probably end, in seconds on the clock of `Workers.now`."""
        ...

    def report(self) -> UpdateReport | None:
        """Return the figures of the update; None while it runs."""
        ...


class Workers(Protocol):
    """The workers of one job. They pull leases from the job's ledger."""

    def now(self) -> float:
        """Return the time in seconds. Simulated workers have a virtual clock."""
        ...

    def publish(self, version: int, policy: Policy) -> None:
        """Make the weights of a version available. Workers pull them before they need them."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Plan requests in the ledger."""
        ...

    def cancel(self, ids: Iterable[str]) -> None:
        """End requests that are no longer needed. Workers drop them as soon as they can."""
        ...

    def train(self, update: Callable[[], UpdateReport], samples: int) -> Training:
        """Start an update. The on-demand accelerators serve no requests until it has ended."""
        ...

    def poll(self, until: float) -> list[Finished]:
        """Let the workers work until a request or the update has ended, at most until a time. Return the
        requests that have ended since the last call.
        """
        ...

    def groups(self) -> int:
        """Return the number of groups of spot nodes that may explore now."""
        ...


def noise_key(request: Request, selection: Selection) -> NoiseKey:
    """Return the noise of a request. With `initialLatent` a rollout has other noise in its steps than the
    exploring that chose its seed.
    """
    walk: tuple[int, ...] = (request.seed,)
    if selection == "initialLatent" and request.kind is RequestKind.ROLLOUT:
        walk = (request.seed, request.iteration)
    return NoiseKey(request.job, request.prompt, request.seed, walk)


def payload_of(found: Scored) -> dict[str, Any]:
    """Return a finished trajectory as the payload of a result."""
    walk = found.walk
    return {
        "path": walk.path,
        "logProbs": walk.log_probs,
        "versions": list(walk.versions),
        "reward": found.reward,
    }


def scored_of(key: NoiseKey, payload: Payload) -> Scored:
    """Return the trajectory in the payload of a result."""
    path, log_probs = np.asarray(payload["path"]), np.asarray(payload["logProbs"])
    return Scored(Trajectory(key, path, log_probs, tuple(payload["versions"])), payload["reward"])


def state_of(walk: Trajectory) -> dict[str, Any]:
    """Return an unfinished trajectory as the state of a commit."""
    return {"path": walk.path, "logProbs": walk.log_probs, "versions": list(walk.versions)}


def walk_of(key: NoiseKey, state: Payload) -> Trajectory:
    """Return the unfinished trajectory in the state of a commit."""
    return Trajectory(key, np.asarray(state["path"]), np.asarray(state["logProbs"]), tuple(state["versions"]))
