"""The simulated cluster: executors that run one task at a time, and jobs that wait for them."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.dag_scheduling.telemetry import History, Telemetry
from convoy_workloads.simulators.dag_scheduling.view import Candidate, Policy, View
from convoy_workloads.simulators.dag_scheduling.workload import Job
from convoy_workloads.simulators.perturbation import Perturbation


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors and the costs of their use."""

    count: int
    move_seconds: float
    """Seconds that an executor needs before its first task of another job."""
    slowdown: float
    """Relative slowdown of tasks if a job has twice as many executors as its sweet spot."""


@dataclass(slots=True)
class JobRun:
    """A job in the cluster."""

    number: int
    job: Job
    waiting: list[int]
    """Number of tasks of each stage that have not started."""
    running: list[int]
    """Number of tasks of each stage that run."""
    parents: list[int]
    """Number of parents of each stage that have not ended."""
    work: float
    """Executor seconds of the tasks that have not started."""
    executors: int = 0
    history: History = field(default_factory=History)

    @property
    def ended(self) -> bool:
        """True if all tasks have ended."""
        return not any(self.waiting) and not any(self.running)


class Cluster:
    """The event loop."""

    def __init__(
        self,
        jobs: list[Job],
        executors: Executors,
        policy: Policy,
        telemetry: Telemetry,
        perturbation: Perturbation | None,
    ) -> None:
        self.ends: list[float] = [math.nan] * len(jobs)
        """Time at which each job ended."""
        self.moves = 0
        """Number of times that an executor moved to another job."""
        self.tenant_seconds = 0.0
        """Executor seconds that the tenant held."""
        self._jobs = jobs
        self._executors = executors
        self._policy = policy
        self._telemetry = telemetry
        self._live: dict[int, JobRun] = {}
        self._free: list[int | None] = [None] * executors.count
        """The job to which each free executor belongs; None before its first task."""
        self._held = 0
        self._wanted = 0
        self._events: list[tuple[float, int, str, tuple[int, int]]] = []
        self._pushed = 0
        self._now = 0.0
        for number, job in enumerate(jobs):
            self._push(job.arrival, "arrival", (number, 0))
        if perturbation is not None and perturbation.kind is PerturbationKind.TENANT:
            wanted = round(perturbation.magnitude * executors.count)
            self._push(perturbation.start, "tenant", (min(wanted, executors.count - 1), 0))
            if perturbation.duration is not None:
                self._push(perturbation.end, "tenant", (0, 0))

    def run(self) -> float:
        """Run all jobs to their end. Return the virtual seconds at which the last one ended."""
        left = len(self._jobs)
        while left:
            now, _, kind, facts = heapq.heappop(self._events)
            self.tenant_seconds += self._held * (now - self._now)
            self._now = now
            if kind == "arrival":
                self._arrive(facts[0])
            elif kind == "tenant":
                self._wanted = facts[0]
                self._serve_tenant()
            else:
                left -= self._end_task(*facts)
            self._assign()
        return self._now

    def _push(self, time: float, kind: str, facts: tuple[int, int]) -> None:
        # The running number keeps events of the same time in the order of their creation.
        self._pushed += 1
        heapq.heappush(self._events, (time, self._pushed, kind, facts))

    def _arrive(self, number: int) -> None:
        job = self._jobs[number]
        run = JobRun(
            number,
            job,
            [one.tasks for one in job.stages],
            [0] * len(job.stages),
            [len(one.parents) for one in job.stages],
            job.work,
        )
        self._live[number] = run
        run.history.record(self._now, run.work)

    def _end_task(self, number: int, stage: int) -> bool:
        """Free an executor, or start the next task of its stage. Return True if the job has ended."""
        run = self._live[number]
        run.running[stage] -= 1
        run.executors -= 1
        if self._held < self._wanted:
            self._held += 1
        elif run.waiting[stage]:
            self._start(run, stage, moved=False)
            return False
        else:
            self._free.append(number)
        if run.waiting[stage] or run.running[stage]:
            return False
        for child, one in enumerate(run.job.stages):
            if stage in one.parents:
                run.parents[child] -= 1
        if not run.ended:
            return False
        self.ends[number] = self._now
        del self._live[number]
        return True

    def _serve_tenant(self) -> None:
        """Give free executors to the tenant, or get executors back."""
        while self._held < self._wanted and self._free:
            self._free.pop()
            self._held += 1
        while self._held > self._wanted:
            self._held -= 1
            self._free.append(None)

    def _assign(self) -> None:
        """Give free executors to stages, as the policy decides."""
        while self._free:
            candidates = self._candidates()
            if not candidates:
                return
            capacity = self._executors.count - self._held
            view = View(
                self._now,
                capacity,
                len(self._free),
                tuple(self._live),
                len(self._free) < capacity,
                candidates,
            )
            chosen = self._policy.choose(view)
            if chosen is None:
                return
            run, stage = self._live[candidates[chosen].job], candidates[chosen].stage
            local = run.number in self._free
            self._free.remove(run.number if local else self._free[0])
            self._start(run, stage, moved=not local)

    def _candidates(self) -> tuple[Candidate, ...]:
        owners = set(self._free)
        found = []
        for run in self._live.values():
            stages = [
                number for number, waiting in enumerate(run.waiting) if waiting and not run.parents[number]
            ]
            if not stages:
                continue
            work, factor = self._telemetry.read(run.history, self._now)
            local = run.number in owners
            for number in stages:
                found.append(
                    Candidate(
                        job=run.number,
                        stage=number,
                        arrival=run.job.arrival,
                        tasks=run.waiting[number],
                        local=local,
                        executors=run.executors,
                        work=work,
                        path=run.job.stages[number].path_seconds * factor,
                    )
                )
        return tuple(found)

    def _start(self, run: JobRun, stage: int, moved: bool) -> None:
        """Start the next task of a stage."""
        seconds = run.job.stages[stage].seconds
        run.waiting[stage] -= 1
        run.running[stage] += 1
        run.executors += 1
        run.work = max(0.0, run.work - seconds)
        run.history.record(self._now, run.work)
        above = max(0, run.executors - run.job.sweet_spot) / run.job.sweet_spot
        time = seconds * (1 + self._executors.slowdown * above)
        if moved:
            self.moves += 1
            time += self._executors.move_seconds
        self._push(self._now + time, "end", (run.number, stage))
