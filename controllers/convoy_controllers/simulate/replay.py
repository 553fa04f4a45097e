"""Replays a scenario. Returns the timeline and the result of each job."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import ClusterEvent, FaultInjected, FirstStep, StatusStored
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.job_kind import JobMonitor, JobResult
from convoy_controllers.simulate.job_kinds import JOB_KINDS, kind_of
from convoy_controllers.simulate.kernel import EPOCH
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.scenario import Scenario, ScenarioEvent, ScenarioJob
from convoy_controllers.simulate.serving.kind import jobs_of
from convoy_crds.engine import Engine
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults

CHECK_SECONDS = 1.0
"""Seconds between two checks for the end of all jobs."""
MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A line of the timeline."""

    at: float
    """Seconds since the start of the scenario."""
    what: str


@dataclass(slots=True)
class History:
    """Timeline and results of a replay."""

    seconds: float = 0.0
    """Duration of the replay in virtual seconds."""
    entries: list[TimelineEntry] = field(default_factory=list)
    dropped: int = 0
    """Number of entries that were dropped because there were already MAX_ENTRIES."""
    results: list[JobResult] = field(default_factory=list)
    skipped: set[int] = field(default_factory=set)
    """Numbers of the scenario's events that had no effect, because their target did not exist."""


def replay(scenario: Scenario) -> History:
    """Replay a scenario to its end. Raises InvariantViolation if Convoy breaks a guarantee."""
    machines = [Machine(node.name, node.capacity, labels=node.labels) for node in scenario.nodes]
    engines = [_engine(*one) for one in sorted(_engines(scenario.jobs).items())]
    defaults = CheckpointDefaults(scenario.checkpoints)
    cluster = Cluster(
        machines, latencies=scenario.latencies, engines=engines, defaults=defaults, seed=scenario.seed
    )
    history = History()
    monitors = {kind.name: kind.monitor(cluster) for kind in JOB_KINDS}
    recorder = _TimelineRecorder(cluster, history, monitors)
    faults = Faults(cluster)
    cluster.operator.lead()
    for run in scenario.jobs:
        cluster.kernel.after(run.at, partial(cluster.submit, run.job, run.program))
    for number, event in enumerate(scenario.events):
        cluster.kernel.after(event.at, partial(recorder.inject, number, event, faults))
    began = cluster.kernel.now
    for number, traffic in enumerate(scenario.traffic):
        # Requests have random values of their own, so they stay the same whatever happens in the cluster.
        rng = random.Random(f"{scenario.seed}/{number}/{traffic.job}")  # noqa: S311 - must be repeatable
        last = began + min(scenario.until if traffic.to is None else traffic.to, scenario.until)
        start = partial(jobs_of(cluster).start_traffic, traffic, last, rng)
        cluster.kernel.after(traffic.since, start)
    while cluster.kernel.now < began + scenario.until and not _is_over(cluster, scenario):
        cluster.run(min(CHECK_SECONDS, began + scenario.until - cluster.kernel.now))
    history.seconds = cluster.kernel.now - began
    history.results = [monitors[job.kind].result(job) for job in recorder.jobs.values()]
    return history


class _TimelineRecorder:
    """Records in the timeline the events that matter to a user."""

    def __init__(self, cluster: Cluster, history: History, monitors: Mapping[str, JobMonitor]) -> None:
        """Create the recorder. `monitors` has the monitor of each kind of jobs, by name of the kind."""
        self._cluster = cluster
        self._history = history
        self._monitors = monitors
        self._injected = 0
        self.jobs: dict[str, Any] = {}
        """Last state of each job by name, including deleted jobs."""
        cluster.listeners.append(self._on_event)

    def _on_event(self, event: ClusterEvent) -> None:
        match event:
            case FaultInjected(description):
                self._injected += 1
                self._add(f"! {description}")
            case FirstStep(gang):
                self._add(f"{gang.job}: incarnation {gang.incarnation} steps")
            case StatusStored(before, after):
                self.jobs[after.metadata.name] = after
                if line := self._monitors[after.kind].line(before, after):
                    self._add(f"{after.metadata.name}: {line}")
            case _:
                pass

    def inject(self, number: int, event: ScenarioEvent, faults: Faults) -> None:
        """Inject the event number `number`. If it had no effect, record that."""
        before = self._injected
        event.inject(faults)
        if self._injected == before:
            self._history.skipped.add(number)
            self._add(f"! {event.do}: skipped, since its target does not exist or is already in that state")

    def _add(self, what: str) -> None:
        if len(self._history.entries) >= MAX_ENTRIES:
            self._history.dropped += 1
            return
        at = self._cluster.kernel.now - EPOCH.timestamp()
        self._history.entries.append(TimelineEntry(round(at, 3), what))


def _is_over(cluster: Cluster, scenario: Scenario) -> bool:
    """Return True if all events have been injected and all jobs have ended."""
    last = max([*(run.at for run in scenario.jobs), *(event.at for event in scenario.events)], default=0.0)
    if cluster.kernel.now - EPOCH.timestamp() <= last:
        return False
    return all(kind_of(stored.job).ended(stored.job) for stored in cluster.api.jobs.values())


def _engines(runs: Iterable[ScenarioJob]) -> dict[str, str]:
    """Return the role kind of each Engine that a job names, by name of the Engine."""
    return {name: role for run in runs for name, role in kind_of(run.job).engines(run.job).items()}


def _engine(name: str, role_kind: str) -> Engine:
    """Return an Engine that accepts all parameters. Its image is never run."""
    spec = {
        "roleKind": role_kind,
        "image": "simulated",
        "command": ["simulated"],
        "paramsSchema": {"type": "object", "additionalProperties": True},
    }
    return Engine.model_validate({"metadata": {"name": name}, "spec": spec})
