"""TrainingJobs in a simulated cluster and in scenario files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from convoy_controllers.simulate.invariants import InvariantChecker
from convoy_controllers.simulate.job_kind import JobKind, Report, Table
from convoy_controllers.simulate.job_reader import JobReader, StoredJobs
from convoy_controllers.simulate.program import Program
from convoy_controllers.simulate.training import Job
from convoy_controllers.simulate.truth import GoodputTruth
from convoy_controllers.simulate.workers import SIGTERM
from convoy_controllers.trainingjob.controller import CONTROLLER
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.tiers import nominal
from convoy_controllers.views import PodView
from convoy_controllers.workers.faults import PREEMPTED
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.goodput import Cause, totals
from convoy_crds.layout import independent_slots, slots, world_size
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster


class TrainingJobs:
    """All TrainingJobs of a cluster."""

    controller = CONTROLLER

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stored = StoredJobs()
        self.program = cluster.training

    def add(self, job: TrainingJob, program: Program | None) -> None:
        """Add a job. Without `program`, its ranks make no steps."""
        saves = nominal(job, self._cluster.defaults).any
        every = float(job.spec.checkpoint.interval_seconds) if saves else 0.0
        self._cluster.training_jobs[job.metadata.uid] = Job(program, every)

    def observed(
        self,
        job: TrainingJob,
        pods: tuple[PodView, ...],
        refused: Mapping[str, Refusal],
        memory: object = None,
    ) -> Observed:
        """Return the state of a job from which plans are made. Plans of TrainingJobs have no memory."""
        reader: Any = JobReader(self._cluster, self._stored, job, pods, refused)
        key = self.controller.key(job.metadata.namespace or "", job.metadata.name)
        found = self.controller.observe(reader, key)
        if found is None:
            raise ValueError(f"the job {job.metadata.name} cannot be observed")
        # Traces are not recorded in the simulation.
        return replace(found, trace_store=None)

    def progressing(self, job: TrainingJob) -> bool:
        """Return True if the job runs."""
        return job.status.phase is Phase.RUNNING

    def term_code(self, job_uid: str) -> int:
        """Return the exit code of a rank that SIGTERM ends. It shows whether the rank saved a checkpoint."""
        known = self._cluster.training_jobs.get(job_uid)
        saves = known is None or known.program is None or known.program.saves_on_term
        return PREEMPTED if saves else 128 + SIGTERM


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A job at the end of a scenario, with its goodput."""

    job: TrainingJob
    """The job as it was at the end of the scenario."""
    ledger: dict[str, float]
    """Seconds by cause, according to the job's status."""
    truth: dict[str, float]
    """Seconds by cause, as they passed in the simulation."""

    def report(self) -> Report:
        """Return the report of the job."""
        status = self.job.status
        ratio = f"{status.goodput.ratio:.1%}" if status.goodput.ratio is not None else "none"
        restarts = f"{status.restarts.total} restarts ({status.restarts.counted} counted)"
        summary = (
            f"{status.phase} {status.reason}, incarnation {status.incarnation}, {restarts}, goodput {ratio}"
        )
        rows = [
            (cause, f"{ledger:.1f} s", f"{truth:.1f} s") for cause, ledger, truth in seconds_by_cause(self)
        ]
        values = {
            "status": status.to_dict(),
            "ledgerSeconds": _rounded(self.ledger),
            "trueSeconds": _rounded(self.truth),
        }
        return Report(summary, (Table(("CAUSE", "LEDGER", "TRUTH"), rows),), values)


def seconds_by_cause(result: TrainingResult) -> list[tuple[str, float, float]]:
    """Return (cause, seconds in the ledger, true seconds). Causes with 0 in both are left out."""
    causes = [cause.value for cause in Cause if result.ledger.get(cause) or result.truth.get(cause)]
    return [(cause, result.ledger.get(cause, 0.0), result.truth.get(cause, 0.0)) for cause in causes]


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {cause: round(length, 3) for cause, length in seconds.items()}


class TrainingMonitor:
    """The observer of all TrainingJobs in one replay."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._truth = GoodputTruth(cluster)
        InvariantChecker(cluster)

    def line(self, before: TrainingJob, after: TrainingJob) -> str:
        """Return the line of the timeline for a change of phase, reason or incarnation."""
        old, new = before.status, after.status
        if (old.phase, old.reason, old.incarnation) == (new.phase, new.reason, new.incarnation):
            return ""
        return f"{new.phase} {new.reason}: {new.message}"

    def result(self, job: TrainingJob) -> TrainingResult:
        """Return the job's goodput according to its status and in truth."""
        ledger = totals(job.status.goodput, self._cluster.kernel.time)
        return TrainingResult(job, ledger, self._truth.seconds(job.metadata.uid))


def _engines(job: TrainingJob) -> dict[str, str]:
    return {job.spec.engine.name: "Training"} if job.spec.engine else {}


TRAINING = JobKind(
    CONTROLLER,
    program=Program,
    simulate=TrainingJobs,
    monitor=TrainingMonitor,
    engines=_engines,
    has_pod=lambda job, name: any(slot.pod == name for slot in (*slots(job), *independent_slots(job))),
    ranks=lambda job: world_size(slots(job)),
    ended=lambda job: job.status.phase in TERMINAL,
)
