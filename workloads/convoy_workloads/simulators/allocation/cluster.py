"""The simulated cluster: nodes on which jobs reserve cores and memory."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.allocation.sizing import RETRY_FACTOR
from convoy_workloads.simulators.allocation.telemetry import Telemetry
from convoy_workloads.simulators.allocation.view import Policy, Start, View, Waiting
from convoy_workloads.simulators.allocation.workload import ROUNDING, Amount, Job
from convoy_workloads.simulators.perturbation import Perturbation

MAX_STRETCH = 5.0
"""Largest factor by which missing cores stretch a job."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes and the scheduler's view of the queue."""

    count: int
    capacity: Amount
    visible: int
    """Number of waiting jobs that the policy sees."""


class Cluster:
    """Simulates the cluster: jobs arrive, the policy starts jobs on nodes, and jobs end."""

    def __init__(
        self,
        jobs: list[Job],
        nodes: Nodes,
        policy: Policy,
        telemetry: Telemetry,
        perturbation: Perturbation | None,
    ) -> None:
        self.ends: list[float] = [math.nan] * len(jobs)
        """Time at which each job ended."""
        self.kills = 0
        """Number of starts that ran out of memory."""
        self.reserved_seconds = 0.0
        """Reserved memory times seconds, over all starts."""
        self.used_seconds = 0.0
        """Used memory times seconds, over all starts that ended well."""
        self._jobs = jobs
        self._nodes = nodes
        self._policy = policy
        self._telemetry = telemetry
        self._free = [nodes.capacity] * nodes.count
        self._queue: list[int] = []
        self._seen: dict[int, Waiting] = {}
        self._running = 0
        self._events: list[tuple[float, int, str, int, Start | None]] = []
        self._pushed = 0
        self._now = 0.0
        self._tenant = Amount(0.0, 0.0)
        self._limit = nodes.capacity
        """The part of each node that no tenant uses."""
        for number, job in enumerate(jobs):
            self._push(job.arrival, "arrival", number)
        if perturbation is not None and perturbation.kind is PerturbationKind.TENANT:
            self._tenant = nodes.capacity.times(perturbation.magnitude)
            self._push(perturbation.start, "tenant", -1)
            if perturbation.duration is not None:
                self._push(perturbation.end, "tenant", 1)

    def run(self) -> float:
        """Run all jobs to their end. Return the virtual seconds at which the last one ended."""
        left = len(self._jobs)
        while left:
            self._now, _, kind, number, start = heapq.heappop(self._events)
            if kind == "arrival":
                self._arrive(number, None)
            elif kind == "tenant":
                self._free = [free.plus(self._tenant, number) for free in self._free]
                self._limit = self._limit.plus(self._tenant, number)
            elif start is not None:
                self._free[start.node] = self._free[start.node].plus(start.reserved)
                self._running -= 1
                left -= self._end(number, start, killed=kind == "kill")
            self._start_jobs()
        return self._now

    def _push(self, time: float, kind: str, number: int, start: Start | None = None) -> None:
        # The running number keeps events of the same time in the order of their creation.
        self._pushed += 1
        heapq.heappush(self._events, (time, self._pushed, kind, number, start))

    def _arrive(self, number: int, least: Amount | None) -> None:
        job = self._jobs[number]
        self._queue.append(number)
        self._seen[number] = Waiting(job, self._telemetry.seconds(self._now, job.declared_seconds), least)

    def _end(self, number: int, start: Start, killed: bool) -> bool:
        """Record the end of a job. Return True if it has ended well, else put it into the queue again."""
        job = self._jobs[number]
        if killed:
            self.kills += 1
            shown = Amount(start.reserved.cores, start.reserved.memory * RETRY_FACTOR)
            self._arrive(number, shown)
            return False
        self._telemetry.record(self._now, job.kind, job.used)
        self.ends[number] = self._now
        return True

    def _start_jobs(self) -> None:
        """Start jobs, as the policy decides."""
        while self._queue:
            shown = self._queue[: self._nodes.visible]
            view = View(
                self._now,
                self._nodes.capacity,
                self._limit,
                tuple(self._free),
                tuple(self._seen[number] for number in shown),
                len(self._queue),
                self._running > 0,
                self._telemetry,
            )
            start = self._policy.choose(view)
            if start is None:
                return
            self._start(shown[start.index], start)

    def _start(self, number: int, start: Start) -> None:
        job = self._jobs[number]
        self._queue.remove(number)
        self._free[start.node] = self._free[start.node].plus(start.reserved, -1)
        self._running += 1
        stretch = min(MAX_STRETCH, max(1.0, job.used.cores / start.reserved.cores))
        # A job that needs more memory than there is on a node does with what it gets.
        killed = min(job.used.memory, self._limit.memory) > start.reserved.memory + ROUNDING
        seconds = job.seconds * stretch * (job.failure_point if killed else 1.0)
        self.reserved_seconds += start.reserved.memory * seconds
        self.used_seconds += 0.0 if killed else min(job.used.memory, start.reserved.memory) * seconds
        self._push(self._now + seconds, "kill" if killed else "end", number, start)
