"""Replays a scenario. Returns the timeline, and two goodputs of each job: the ledger's and the true one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import ClusterEvent, FaultInjected, FirstStep, StatusStored
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.invariants import InvariantChecker
from convoy_controllers.simulate.kernel import EPOCH
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.scenario import Scenario, ScenarioEvent, ScenarioJob
from convoy_controllers.simulate.truth import GoodputTruth
from convoy_crds.engine import Engine
from convoy_crds.goodput import Cause, totals
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_checkpoint import CheckpointDefaults
from convoy_crds.trainingjob_status import TERMINAL

CHECK_SECONDS = 1.0
"""Seconds between two checks for the end of all jobs."""
MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A line of the timeline."""

    at: float
    """Seconds since the start of the scenario."""
    what: str


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job at the end of a scenario, with its goodput."""

    job: TrainingJob
    """The job as it was at the end of the scenario."""
    ledger: dict[str, float]
    """Seconds by cause, according to the job's status."""
    truth: dict[str, float]
    """Seconds by cause, as they passed in the simulation."""


@dataclass(slots=True)
class History:
    """Timeline and results of a replay."""

    seconds: float = 0.0
    """Duration of the replay in virtual seconds."""
    entries: list[TimelineEntry] = field(default_factory=list)
    dropped: int = 0
    """Number of entries that were dropped because there were already MAX_ENTRIES."""
    results: list[JobResult] = field(default_factory=list)


def replay(scenario: Scenario) -> History:
    """Replay a scenario to its end. Raises InvariantViolation if Convoy breaks a guarantee."""
    machines = [Machine(node.name, node.capacity) for node in scenario.nodes]
    engines = [_engine(name) for name in sorted(_engines(scenario.jobs))]
    defaults = CheckpointDefaults(scenario.checkpoints)
    cluster = Cluster(
        machines, latencies=scenario.latencies, engines=engines, defaults=defaults, seed=scenario.seed
    )
    history = History()
    recorder = _TimelineRecorder(cluster, history)
    truth = GoodputTruth(cluster)
    InvariantChecker(cluster)
    faults = Faults(cluster)
    cluster.operator.lead()
    for run in scenario.jobs:
        cluster.kernel.after(run.at, partial(cluster.submit, run.job, run.program))
    for event in scenario.events:
        cluster.kernel.after(event.at, partial(recorder.inject, event, faults))
    began = cluster.kernel.now
    while cluster.kernel.now < began + scenario.until and not _is_over(cluster, scenario):
        cluster.run(min(CHECK_SECONDS, began + scenario.until - cluster.kernel.now))
    history.seconds = cluster.kernel.now - began
    for job in recorder.jobs.values():
        ledger = totals(job.status.goodput, cluster.kernel.time)
        history.results.append(JobResult(job, ledger, truth.seconds(job.metadata.uid)))
    return history


def seconds_by_cause(result: JobResult) -> list[tuple[str, float, float]]:
    """Return (cause, seconds in the ledger, true seconds). Causes with 0 in both are left out."""
    causes = [cause.value for cause in Cause if result.ledger.get(cause) or result.truth.get(cause)]
    return [(cause, result.ledger.get(cause, 0.0), result.truth.get(cause, 0.0)) for cause in causes]


class _TimelineRecorder:
    """Records in the timeline the events that matter to a user."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._injected = 0
        self.jobs: dict[str, TrainingJob] = {}
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
                old, new = before.status, after.status
                if (old.phase, old.reason, old.incarnation) != (new.phase, new.reason, new.incarnation):
                    self._add(f"{after.metadata.name}: {new.phase} {new.reason}: {new.message}")
            case _:
                pass

    def inject(self, event: ScenarioEvent, faults: Faults) -> None:
        """Inject an event. If it had no effect, record that."""
        before = self._injected
        event.inject(faults)
        if self._injected == before:
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
    return all(stored.job.status.phase in TERMINAL for stored in cluster.api.jobs.values())


def _engines(runs: Iterable[ScenarioJob]) -> set[str]:
    return {run.job.spec.engine.name for run in runs if run.job.spec.engine is not None}


def _engine(name: str) -> Engine:
    """Return an Engine that accepts all parameters. Its image is never run."""
    spec = {
        "image": "simulated",
        "command": ["simulated"],
        "paramsSchema": {"type": "object", "additionalProperties": True},
    }
    return Engine.model_validate({"metadata": {"name": name}, "spec": spec})
