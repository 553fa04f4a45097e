"""The workers as actors of Ray, one for each slot of a node, and the driver's connection to them.

Actors are never restarted by Ray. A lost one is an ordinary event: its leases are taken back, and another one
starts on the next node that comes.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.engines.spotlight.learning.models import problem_of, untrained_policy
from convoy_workloads.engines.spotlight.learning.sampler import Sampler
from convoy_workloads.engines.spotlight.live.cluster import Changes
from convoy_workloads.engines.spotlight.live.computation import Walks
from convoy_workloads.engines.spotlight.live.groups import (
    Batch,
    Group,
    GroupBroken,
    Membership,
    Part,
    fitting_degree,
    form,
)
from convoy_workloads.engines.spotlight.live.mailbox import Call, Mailbox
from convoy_workloads.engines.spotlight.live.messages import Message, NoAnswer, Stored, Weights
from convoy_workloads.engines.spotlight.live.sequence_parallel import GroupPolicy, compute_part
from convoy_workloads.engines.spotlight.live.weights import Policies
from convoy_workloads.engines.spotlight.live.worker import ANSWER_SECONDS, Worker
from convoy_workloads.engines.spotlight.params import GridProblem, RingProblem, Selection
from convoy_workloads.ray_cluster import notice
from convoy_workloads.ray_cluster.head import Head, WorkerNode
from convoy_workloads.ray_cluster.outcomes import Late, Value, finished, outcome

PAUSE_SECONDS = 0.05
FETCH_SECONDS = 60.0
"""Longest time in which a worker copies weights from the head."""
CALL_SECONDS = 2.0
"""Longest wait of the driver for its own mailbox, which is on its own node."""
JOIN_SECONDS = 5.0
MAX_STARTS = 5
"""Actors that are started in one slot of a node. A slot where they all fail is left alone."""
RESTART_SECONDS = 20.0
"""Seconds from the end of an actor to the start of the next one in its slot. A lost node is known by then."""


@dataclass(frozen=True)
class Recipe:
    """Everything that a worker needs to know about the job."""

    problem: RingProblem | GridProblem
    sampler: Sampler
    selection: Selection
    capacity: int
    """Requests that a worker computes at a time."""
    step_seconds: float = 0.0
    """Least time of a denoising step."""


class Exchange:
    """The mailbox as an actor on the driver's node."""

    def __init__(self) -> None:
        self._mailbox = Mailbox()

    def call(self, worker: str, message: Message, seconds: float) -> tuple[Any, ...]:
        """Return the driver's answer in a tuple; an empty tuple if there is none."""
        try:
            return (self._mailbox.call(worker, message, seconds),)
        except NoAnswer:
            return ()

    def collect(self, seconds: float) -> list[Call]:
        """Return the calls that wait."""
        return self._mailbox.collect(seconds)

    def reply(self, answers: Mapping[int, Any]) -> None:
        """Answer calls."""
        self._mailbox.reply(answers)


class RayClient:
    """A worker's connection to the driver."""

    def __init__(self, exchange: Any, name: str) -> None:
        self._exchange = exchange
        self._name = name

    def call(self, message: Message, seconds: float) -> Any:
        """Return the driver's answer. Raises NoAnswer."""
        found = outcome(self._exchange.call.remote(self._name, message, seconds), seconds + 1)
        if not isinstance(found, Value) or not found.value:
            raise NoAnswer
        return found.value[0]


class SpotActor:
    """One worker. `run` lasts as long as the worker; the other methods run beside it."""

    def __init__(self, name: str, exchange: Any, recipe: Recipe) -> None:
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
        """Return the peer's velocities. Raises GroupBroken."""
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


@dataclass
class Running:
    """A worker as the driver knows it."""

    node: str
    handle: Any
    run: Any
    """The call of `run`, which ends with the worker."""


@dataclass
class RayCluster:
    """The workers on the nodes of the head's cluster."""

    head: Head
    recipe: Recipe
    degrees: Sequence[int] = (1,)
    """Degrees of sequence parallelism that groups may have."""
    degree: int = 1
    """Present degree. Groups on nodes with fewer workers have smaller ones."""
    running: dict[str, Running] = field(default_factory=dict)
    epoch: int = 0
    _starts: Counter[str] = field(default_factory=Counter)
    _ends: dict[str, float] = field(default_factory=dict)
    """Time of the last end of an actor in each slot."""
    ready: set[str] = field(default_factory=set)
    """Workers that have called. Others are starting, and would hold up a group."""
    _outdated: bool = False
    """True if the groups do not contain exactly the workers that are ready."""
    _groups: list[Group] = field(default_factory=list)
    _exchange: Any = None

    def start(self) -> None:
        """Start the mailbox on the driver's own node."""
        self._exchange = on_node(Exchange, self.head.own_node_id(), max_concurrency=128).remote()

    def reconcile(self) -> Changes:
        """Start workers on nodes that have none. Return what has changed since the last call."""
        nodes = {node.id: node for node in self.head.worker_nodes()}
        ended = self._ended(nodes)
        draining = self.head.draining()
        started = [
            self._start(node, slot)
            for node in nodes.values()
            if node.id not in draining
            for slot in range(node.slots)
            if self._may_start(_name(node, slot))
        ]
        if self._outdated:
            self._form(self.degree)
        return Changes(ended, started)

    def regroup(self, degree: int) -> float:
        """Form groups of this degree. Return the seconds until all members have joined, or are late."""
        began = time.perf_counter()
        deadline = time.monotonic() + JOIN_SECONDS
        for one in self._form(degree):
            if isinstance(outcome(one, deadline - time.monotonic()), Late):
                break
        return time.perf_counter() - began

    def restart(self) -> None:
        """Kill all workers. The next `reconcile` starts others."""
        import ray  # noqa: PLC0415

        for one in self.running.values():
            ray.kill(one.handle)
        self.running.clear()
        self.ready.clear()
        self._starts.clear()

    def _form(self, degree: int) -> list[Any]:
        """Send each worker its group. Return the calls; they need not be waited for."""
        self.degree, self.epoch, self._outdated = degree, self.epoch + 1, False
        by_node: dict[str, list[str]] = {}
        for name in sorted(self.ready):
            by_node.setdefault(self.running[name].node, []).append(name)
        self._groups = form(by_node, degree, self.epoch)
        return [
            self.running[member].handle.join.remote(
                group, {other: self.running[other].handle for other in group.members if other != member}
            )
            for group in self._groups
            for member in group.members
        ]

    def fit(self, requests: int) -> None:
        """Let workers compute together if there are fewer open requests than workers."""
        degree = fitting_degree(len(self.ready), requests, self.degrees)
        if requests and degree != self.degree:
            self._form(degree)

    def groups(self) -> int:
        """Return the number of groups."""
        return len(self._groups)

    def draining(self) -> frozenset[str]:
        """Return the names of the workers whose nodes are about to vanish."""
        nodes = self.head.draining()
        return frozenset(name for name, one in self.running.items() if one.node in nodes)

    def store(self, vector: Any) -> Stored:
        """Put weights into the object store."""
        import ray  # noqa: PLC0415 - heavy

        return Stored(ray.put(vector))

    def collect(self, seconds: float) -> list[Call]:
        """Return the calls of workers."""
        found = outcome(self._exchange.collect.remote(seconds), seconds + CALL_SECONDS)
        calls: list[Call] = found.value if isinstance(found, Value) else []
        came = {one.worker for one in calls} & set(self.running) - self.ready
        self.ready |= came
        self._outdated = self._outdated or bool(came)
        return calls

    def reply(self, answers: Mapping[int, Any]) -> None:
        """Answer calls."""
        self._exchange.reply.remote(answers)

    def _may_start(self, name: str) -> bool:
        ended = self._ends.get(name)
        waits = ended is not None and time.monotonic() - ended < RESTART_SECONDS
        return name not in self.running and self._starts[name] < MAX_STARTS and not waits

    def _start(self, node: WorkerNode, slot: int) -> str:
        name = _name(node, slot)
        self._starts[name] += 1
        actor = on_node(SpotActor, node.id, max_concurrency=8, slots=1)
        handle = actor.remote(name, self._exchange, self.recipe)
        self.running[name] = Running(node.id, handle, handle.run.remote())
        return name

    def _ended(self, nodes: Mapping[str, Any]) -> list[str]:
        runs = {one.run: name for name, one in self.running.items()}
        over = [runs[one] for one in finished(list(runs), 0.0)]
        over += [name for name, one in self.running.items() if one.node not in nodes and name not in over]
        for name in over:
            del self.running[name]
            self._ends[name] = time.monotonic()
            self._outdated = self._outdated or name in self.ready
            self.ready.discard(name)
        return over


def on_node(kind: Callable[..., Any], node_id: str, max_concurrency: int, slots: int = 0) -> Any:
    """Return the actor class `kind` for one node. `slots`: number of the node's slots that an actor takes.

    A worker takes one. A node whose actors take none is idle for Ray, which ends it as soon as it drains.
    """
    import ray  # noqa: PLC0415
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    place = NodeAffinitySchedulingStrategy(node_id, soft=False)
    options = {"num_cpus": slots, "max_restarts": 0, "max_concurrency": max_concurrency}
    return ray.remote(scheduling_strategy=place, **options)(kind)


def _name(node: WorkerNode, slot: int) -> str:
    return f"{node.address}/{slot}/{node.id[:8]}"
