"""The observer of simulated ServingJobs: their rollouts, their requests, and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convoy_controllers.simulate.job_kind import Report, Table
from convoy_controllers.simulate.kernel import EPOCH
from convoy_controllers.simulate.serving import limits
from convoy_controllers.simulate.serving.invariants import ServingInvariants
from convoy_controllers.simulate.serving.jobs import ServingJobs
from convoy_controllers.simulate.serving.requests import Outcome, RequestLog
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_status import ServingJobStatus
from convoy_crds.terms import ConditionType

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster

HALTED = "halted"
SHARES = (0.5, 0.95, 0.99)


@dataclass(slots=True)
class RolloutRecord:
    """One rollout, as it happened. Times are seconds from the start of the scenario."""

    revision: str
    began: float
    floor: int
    """Number of replicas that the spec lets the rollout not go below. The first rollout has no floor."""
    ended: float | None = None
    """None while the rollout goes on."""
    result: str = "running"
    fewest: int | None = None
    """Lowest number of replicas that served during the rollout."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return {
            "revision": self.revision,
            "from": self.began,
            "to": self.ended,
            "result": self.result,
            "fewestServing": self.fewest,
            "floor": self.floor,
        }


@dataclass(frozen=True, slots=True)
class ServingResult:
    """A job at the end of a scenario, with its requests and rollouts."""

    job: ServingJob
    """The job as it was at the end of the scenario."""
    log: RequestLog
    left: int
    """Number of requests that had not ended."""
    rollouts: tuple[RolloutRecord, ...] = ()

    def report(self) -> Report:
        """Return the report of the job."""
        status, log = self.job.status, self.log
        tables = [self._requests()] if log.total or self.left else []
        if log.causes:
            causes = [(str(cause), str(count)) for cause, count in sorted(log.causes.items())]
            tables.append(Table(("FAILED BY", "REQUESTS"), causes))
        tables.append(self._rollouts())
        percentiles = log.percentiles(*SHARES)
        values = {
            "status": status.to_dict(),
            "requests": {
                **{str(outcome): log.outcomes[outcome] for outcome in Outcome},
                "left": self.left,
                "causes": {str(cause): count for cause, count in sorted(log.causes.items())},
                **{
                    f"p{round(100 * share)}Ms": None if value is None else round(1000 * value, 3)
                    for share, value in zip(SHARES, percentiles, strict=True)
                },
            },
            "rollouts": [one.to_dict() for one in self.rollouts],
        }
        summary = f"{status.reason}, {status.ready} replicas ready, revision {status.update_revision}"
        return Report(summary, tuple(tables), values)

    def _requests(self) -> Table:
        log = self.log
        counts = tuple(str(log.outcomes[outcome]) for outcome in Outcome)
        times = tuple("-" if one is None else f"{1000 * one:.0f} ms" for one in log.percentiles(*SHARES))
        head = ("REQUESTS", *(outcome.upper() for outcome in Outcome), "P50", "P95", "P99")
        return Table(head, [(str(log.total + self.left), *counts, *times)])

    def _rollouts(self) -> Table:
        rows = [
            (
                one.revision,
                f"{one.began:.1f} s",
                "-" if one.ended is None else f"{one.ended:.1f} s",
                one.result,
                "-" if one.fewest is None else str(one.fewest),
                str(one.floor),
            )
            for one in self.rollouts
        ]
        return Table(("REVISION", "FROM", "TO", "RESULT", "FEWEST SERVING", "FLOOR"), rows)


class ServingMonitor:
    """The observer of all ServingJobs in one replay."""

    def __init__(self, cluster: Cluster, jobs: ServingJobs) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._records: dict[str, list[RolloutRecord]] = {}
        """Rollouts of each job, by name."""
        self._invariants = ServingInvariants(cluster, jobs)
        jobs.availability_changed.append(self._count)

    def line(self, before: ServingJob, after: ServingJob) -> str:
        """Return the line of the timeline for a change of reason or revision."""
        old, new = before.status, after.status
        self._record(after, old)
        if (old.reason, old.update_revision) == (new.reason, new.update_revision):
            return ""
        return f"{new.reason}, {new.ready} ready: {new.message}"

    def result(self, job: ServingJob) -> ServingResult:
        """Return the job's requests and rollouts."""
        self._invariants.check_end(job)
        name = job.metadata.name
        rollouts = tuple(self._records.get(name, ()))
        return ServingResult(job, self._jobs.log(name), self._jobs.requests_left(name), rollouts)

    # Rollouts

    def _record(self, job: ServingJob, before: ServingJobStatus) -> None:
        """Record the begin and the end of rollouts."""
        name, status = job.metadata.name, job.status
        records = self._records.setdefault(name, [])
        running = records[-1] if records and records[-1].ended is None else None
        if status.update_revision != before.update_revision and status.update_revision:
            if running is not None:
                self._end(running, HALTED if running.result == HALTED else "superseded")
            floor = limits.floor(job, job.spec.serving_role) if records else 0
            records.append(RolloutRecord(status.update_revision, self._now(), floor))
            running = records[-1]
            self._count(name)
        progressing = next((one for one in status.conditions if one.type == ConditionType.PROGRESSING), None)
        if running is None or progressing is None:
            return
        if progressing.reason == Reasons.ROLLOUT_COMPLETE.name:
            self._end(running, "complete")
        elif progressing.status == "False":
            running.result = HALTED
        else:
            running.result = "paused" if progressing.status == "Unknown" else "running"

    def _end(self, record: RolloutRecord, result: str) -> None:
        record.ended, record.result = self._now(), result

    def _count(self, job: str) -> None:
        """Count the replicas that serve, for the rollout in progress."""
        records = self._records.get(job, [])
        if len(records) > 1 and records[-1].ended is None:
            serving = self._jobs.serving(job)
            fewest = records[-1].fewest
            records[-1].fewest = serving if fewest is None else min(fewest, serving)

    def _now(self) -> float:
        return round(self._cluster.kernel.now - EPOCH.timestamp(), 3)
