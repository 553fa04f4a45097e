"""A worker as an actor of Ray, and the members of its group."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.engines.spotlight.learning.models import problem_of, untrained_policy
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.live.computation import Walks
from convoy_workloads.engines.spotlight.live.exchange import RayClient
from convoy_workloads.engines.spotlight.live.groups import Batch, Group, GroupBroken, Membership, Part
from convoy_workloads.engines.spotlight.live.image import Image, check_image, own_image
from convoy_workloads.engines.spotlight.live.messages import NoAnswer, Stored, Weights
from convoy_workloads.engines.spotlight.live.sequence_parallel import GroupPolicy, compute_part
from convoy_workloads.engines.spotlight.live.weights import Policies
from convoy_workloads.engines.spotlight.live.worker import ANSWER_SECONDS, Worker
from convoy_workloads.engines.spotlight.params import GridProblem, RingProblem, Selection
from convoy_workloads.ray_cluster import notice
from convoy_workloads.ray_cluster.outcomes import Value, outcome

PAUSE_SECONDS = 0.05
FETCH_SECONDS = 60.0
"""Longest time in which a worker copies weights from the head."""


@dataclass(frozen=True)
class Recipe:
    """Everything that a worker needs to know about the job."""

    problem: RingProblem | GridProblem
    sampler: Sampler
    selection: Selection
    capacity: int
    """Requests that a worker computes at a time."""
    step_seconds: float = 0.0
    """Minimum seconds of a denoising step."""
    image: Image = field(default_factory=own_image)
    """The trainer's image. A worker with another one refuses to start."""


class SpotActor:
    """One worker. `run` lasts as long as the worker; the other methods run beside it."""

    def __init__(self, name: str, exchange: Any, recipe: Recipe) -> None:
        """Prepare the worker. Raises OtherImage if this worker's image differs from the trainer's."""
        check_image(recipe.image)
        self._name = name
        self._client = RayClient(exchange, name)
        self._member = Membership(name)
        self._numbers = itertools.count()
        self._policies = Policies(lambda: untrained_policy(recipe.problem), self._fetch)
        problem = problem_of(recipe.problem)
        walks = Walks(recipe.sampler, problem, recipe.selection, self._policy, recipe.step_seconds)
        self._worker = Worker(self._client, walks, recipe.capacity, self._pause, self._noticed, self._leads)

    def run(self) -> Mapping[str, int]:
        """Work until the node is about to vanish. Return the worker's counts."""
        self._worker.run()
        return dict(self._worker.counts)

    def stop(self) -> None:
        """End `run` after the current step."""
        self._worker.stop()

    def load(self, version: int) -> float:
        """Fetch the weights of a version. Return the seconds that this took."""
        began = time.perf_counter()
        self._policies.of(version)
        return time.perf_counter() - began

    def join(self, group: Group, handles: Mapping[str, Any]) -> bool:
        """Join a group with the actors of its members. Return False for an old epoch."""
        return self._member.join(group, RayPeers(handles) if group.degree > 1 else None)

    def share(self, epoch: int, batch: Batch) -> Any:
        """Return the velocities of this worker's tokens; None if the group is broken."""
        try:
            policy: Any = self._policies.of(batch.version)
            return compute_part(policy, batch, self._member, epoch)
        except GroupBroken:
            return None

    def receive(self, part: Part) -> bool:
        """Keep a peer's part. Return False for an old epoch."""
        return self._member.receive(part)

    def _policy(self, version: int) -> GroupPolicy:
        return GroupPolicy(version, self._policies.of(version), self._member, self._numbers.__next__)

    def _leads(self) -> bool:
        return self._member.leads

    def _fetch(self, version: int) -> Any:
        try:
            stored = self._client.call(Weights(version), ANSWER_SECONDS)
        except NoAnswer:
            return None
        if not isinstance(stored, Stored):
            return None
        found = outcome(stored.reference, FETCH_SECONDS)
        return found.value if isinstance(found, Value) else None

    def _noticed(self) -> bool:
        return notice.deadline() is not None

    def _pause(self) -> None:
        time.sleep(PAUSE_SECONDS)


@dataclass(frozen=True)
class RayPart:
    """The answer of a peer that has not come yet."""

    reference: Any

    def get(self, seconds: float) -> Any:
        """Return the peer's velocities. Raises GroupBroken if they do not arrive within `seconds`."""
        found = outcome(self.reference, seconds)
        if not isinstance(found, Value) or found.value is None:
            raise GroupBroken(f"a member did not answer: {found}")
        return found.value


class RayPeers:
    """The other members of a group, by name."""

    def __init__(self, handles: Mapping[str, Any]) -> None:
        self._handles = handles

    def share(self, member: str, epoch: int, batch: Batch) -> RayPart:
        """Let a member compute its tokens."""
        return RayPart(self._handles[member].share.remote(epoch, batch))

    def send(self, member: str, part: Part) -> None:
        """Send keys and values to a member."""
        self._handles[member].receive.remote(part)
