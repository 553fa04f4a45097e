"""The workers as actors of Ray, one for each slot of a node, as the driver sees them.

Actors are never restarted by Ray. A lost one is an ordinary event: its leases are taken back, and another one
starts on the next node that comes. One that fails is logged, and another one starts in its slot later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.engines.spotlight.live.cluster import Changes
from convoy_workloads.engines.spotlight.live.exchange import CONCURRENCY, Exchange
from convoy_workloads.engines.spotlight.live.groups import Group, fitting_degree, form
from convoy_workloads.engines.spotlight.live.mailbox import MAX_CALLS, Call
from convoy_workloads.engines.spotlight.live.messages import Stored
from convoy_workloads.engines.spotlight.live.slot_starts import SlotStarts
from convoy_workloads.engines.spotlight.live.spot_actor import Recipe, SpotActor
from convoy_workloads.ray_cluster.head import Head, WorkerNode
from convoy_workloads.ray_cluster.outcomes import Late, Lost, Outcome, Raised, Value, finished, outcome
from convoy_workloads.runtime.log import log_line

CALL_SECONDS = 2.0
"""Longest wait of the driver for its own mailbox, which is on its own node."""
JOIN_SECONDS = 5.0
MAX_REASON = 500
"""Characters of a failed worker's error that are logged."""
MAX_WORKERS = MAX_CALLS // 2
"""Workers at a time. Each one has at most two calls at a time, of which the mailbox takes MAX_CALLS."""


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
    starts: SlotStarts = field(default_factory=SlotStarts)
    """Starts and ends of actors in each slot."""
    ready: set[str] = field(default_factory=set)
    """Workers that have called. Others are starting, and would hold up a group."""
    _outdated: bool = False
    """True if the groups do not contain exactly the workers that are ready."""
    _groups: list[Group] = field(default_factory=list)
    _left_out: int = 0
    """Slots that stay empty because there are MAX_WORKERS workers."""
    _exchange: Any = None
    _collecting: Any = None
    """The call of the mailbox that has not returned yet."""

    def start(self) -> None:
        """Start the mailbox on the driver's own node."""
        self._exchange = on_node(Exchange, self.head.own_node_id(), CONCURRENCY).remote()

    def reconcile(self) -> Changes:
        """Start workers in free slots. Return what has changed since the last call."""
        # Before the nodes: a node is dead by the time that its actors are, so a lost one is no failed worker.
        ends = self._ends()
        nodes = {node.id: node for node in self.head.worker_nodes()}
        draining = self.head.draining()
        ended, failed = self._remove_ended(ends, nodes, draining)
        slots = {(node.id, slot): _name(node, slot) for node in nodes.values() for slot in range(node.slots)}
        self.starts.keep(set(slots.values()))
        free = [
            (nodes[node], name)
            for (node, _), name in slots.items()
            if node not in draining and name not in self.running and self.starts.may_start(name)
        ]
        room = max(0, MAX_WORKERS - len(self.running))
        self._report_left_out(len(free[room:]))
        started = {self._start(node, name): _slot_of(name) for node, name in free[:room]}
        if self._outdated:
            self._form(self.degree)
        since = {_slot_of(name): nodes[node].since for (node, _), name in slots.items()}
        return Changes(ended, started, since, failed)

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
        self.starts.keep(())

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
        """Return the calls of workers. A result that comes too late is returned by the next call."""
        if self._collecting is None:
            self._collecting = self._exchange.collect.remote(seconds)
        found = outcome(self._collecting, seconds + CALL_SECONDS)
        if not isinstance(found, Late):
            self._collecting = None
        calls: list[Call] = found.value if isinstance(found, Value) else []
        came = {one.worker for one in calls} & set(self.running) - self.ready
        self.ready |= came
        self._outdated = self._outdated or bool(came)
        return calls

    def reply(self, answers: Mapping[int, Any]) -> None:
        """Answer calls."""
        self._exchange.reply.remote(answers)

    def _start(self, node: WorkerNode, name: str) -> str:
        self.starts.started(name)
        actor = on_node(SpotActor, node.id, max_concurrency=8, slots=1)
        handle = actor.remote(name, self._exchange, self.recipe)
        self.running[name] = Running(node.id, handle, handle.run.remote())
        return name

    def _ends(self) -> dict[str, Outcome]:
        """Return how workers have ended."""
        runs = {one.run: name for name, one in self.running.items()}
        return {runs[one]: outcome(one, 0.0) for one in finished(list(runs), 0.0)}

    def _remove_ended(
        self, ends: Mapping[str, Outcome], nodes: Collection[str], draining: Collection[str]
    ) -> tuple[list[str], int]:
        """Remove the workers that have ended. Return their names, and the number of those that failed on a
        node that stays.
        """
        over = [name for name, one in self.running.items() if name in ends or one.node not in nodes]
        failures: list[str] = []
        for name in over:
            node, end = self.running.pop(name).node, ends.get(name)
            stays = node in nodes and node not in draining
            pause = self.starts.ended(name, stays and isinstance(end, Raised | Lost))
            if stays and isinstance(end, Raised | Lost):
                failures.append(f"{name}, again in {pause:.0f} s: {end.reason[:MAX_REASON]}")
            self._outdated = self._outdated or name in self.ready
            self.ready.discard(name)
        if failures:
            log_line(f"spotlight: {len(failures)} workers failed. The first one is {failures[0]}")
        return over, len(failures)

    def _report_left_out(self, count: int) -> None:
        """Log how many slots stay empty for the bound of workers, whenever their number grows."""
        if count > self._left_out:
            log_line(
                f"spotlight: {count} slots stay empty, as a job has at most {MAX_WORKERS} workers: lower "
                "params.live.slots, or the replicas of the spot role"
            )
        self._left_out = count


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
    """Return the name of the worker in a slot: the slot's name, and the node's."""
    since = "" if node.since is None else f"@{node.since:.0f}"
    return f"{node.address}{since}/{slot}/{node.id[:8]}"


def _slot_of(worker: str) -> str:
    """Return the name of a worker's slot. It stays if the same pod joins another head."""
    return worker.rpartition("/")[0]
