"""The table of ServingJobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from shlex import quote

from convoy_crds.meta import Condition
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_status import Traffic
from convoy_crds.summaries import NOT_RECONCILED, age
from convoy_crds.terms import MANAGED_BY, ConditionType
from convoy_operator.dashboard.core.formatting import clock, figure, reason_text, serving_link
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.row_cache import RowCache, newest_first
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

NEW = "New"
UNREADABLE = "Unreadable"
DELETING = "Deleting"
EXTERNAL = "External"
SUSPENDED = "Suspended"
INVALID = "Invalid"
UNAVAILABLE = "Unavailable"
HALTED = "Halted"
DEGRADED = "Degraded"
STARTING = "Starting"
"""State of a job whose first replicas start."""
ROLLING = "Rolling out"
AVAILABLE = "Available"
SCALED_TO_ZERO = "Scaled to zero"
"""State of a job that needs no replica at present, because no requests arrive."""
TONES = {
    AVAILABLE: Tone.GOOD,
    SCALED_TO_ZERO: Tone.QUIET,
    ROLLING: Tone.BUSY,
    STARTING: Tone.BUSY,
    DEGRADED: Tone.WARN,
    HALTED: Tone.WARN,
    UNAVAILABLE: Tone.BAD,
    INVALID: Tone.BAD,
    SUSPENDED: Tone.QUIET,
    NEW: Tone.WARN,
    EXTERNAL: Tone.QUIET,
    DELETING: Tone.QUIET,
    UNREADABLE: Tone.BAD,
}
"""The states of a ServingJob that pages show, in the order of their counts, with their tones."""
COLUMNS = (
    Column("Job", link=True),
    Column("State", badge=True),
    Column("Ready", number=True),
    Column("Revision"),
    Column("P95", number=True),
    Column("Requests/s", number=True),
    Column("Queue", number=True),
    Column("Age", number=True),
    Column("Why", wide=True, brief=True),
)


def ours(job: ServingJob) -> bool:
    """Return True if Convoy's operator manages the job."""
    return job.spec.managed_by in (None, MANAGED_BY)


def state(job: ServingJob) -> str:
    """Return the state that pages show for the job: the gravest that its conditions report."""
    if job.metadata.deletion_timestamp is not None:
        return DELETING
    if not job.status.observed_generation:
        return NEW if ours(job) else EXTERNAL
    found = {one.type: one for one in job.status.conditions}
    status = {kind: one.status for kind, one in found.items()}
    if status.get(ConditionType.SUSPENDED) == "True":
        return SUSPENDED
    progressing = found.get(ConditionType.PROGRESSING)
    rolls = progressing is not None and progressing.reason == Reasons.ROLLING_OUT.name
    degraded = status.get(ConditionType.DEGRADED) == "True"
    checks = (
        (INVALID, status.get(ConditionType.VALID) == "False"),
        (HALTED, status.get(ConditionType.PROGRESSING) == "False"),
        (STARTING, rolls and not job.status.current_revision and not degraded),
        (UNAVAILABLE, status.get(ConditionType.AVAILABLE) != "True"),
        (DEGRADED, degraded),
        (ROLLING, rolls),
        (SCALED_TO_ZERO, _scaled_to_zero(job) is not None),
    )
    return next((name for name, holds in checks if holds), AVAILABLE)


def _scaled_to_zero(job: ServingJob) -> Condition | None:
    """Return the condition that says that the job needs no replica; None if it needs some."""
    reason = Reasons.SCALED_TO_ZERO.name
    conditions = job.status.conditions
    return next(
        (one for one in conditions if one.type == ConditionType.AVAILABLE and one.reason == reason), None
    )


def why(job: ServingJob) -> str:
    """Describe the reason for the job's state in one line."""
    status, leaves = job.status, job.metadata.deletion_timestamp
    text = reason_text(status.reason, status.message, status.conditions)
    if state(job) == SCALED_TO_ZERO and (idle := _scaled_to_zero(job)) is not None:
        text = f"{idle.reason}: {idle.message}"
    if leaves is not None:
        text = "; ".join(part for part in (f"being deleted since {clock(leaves)}", text) if part)
    elif not status.observed_generation and ours(job):
        text = NOT_RECONCILED
    if not ours(job):
        text = "; ".join(part for part in (f"managed by {job.spec.managed_by}", text) if part)
    return text or "-"


def milliseconds(value: float | None) -> str:
    """Return a latency with its unit, or a dash if unknown."""
    if value is None:
        return "-"
    return f"{figure(value)} ms" if value < 1000 else f"{figure(value / 1000)} s"


def row(parsed: ParsedObject[ServingJob], now: datetime) -> Row:
    """Return the table row of a job."""
    key = f"{parsed.namespace}/{parsed.name}"
    name = Cell(key, href=serving_link(parsed.namespace, parsed.name))
    job = parsed.model
    if job is None:
        rest = (Cell("-"),) * (len(COLUMNS) - 3)
        return Row(key, (name, Cell(UNREADABLE, Tone.BAD), *rest, Cell(parsed.parse_error)), UNREADABLE)
    status, shown = job.status, state(job)
    traffic = status.traffic or Traffic()
    created = job.metadata.creation_timestamp
    cells = (
        name,
        Cell(shown, TONES[shown]),
        Cell(status.ready or "-"),
        Cell(status.update_revision or "-"),
        Cell(milliseconds(traffic.p95_ms), order=traffic.p95_ms),
        Cell(figure(traffic.requests_per_second), order=traffic.requests_per_second),
        Cell(f"{traffic.queue:,}" if traffic.queue is not None else "-", order=traffic.queue),
        Cell(age(created, now), order=-created.timestamp() if created else None),
        Cell(why(job)),
    )
    return Row(key, cells, shown)


def rows(
    jobs: Iterable[ParsedObject[ServingJob]], now: datetime, cache: RowCache[ServingJob] | None = None
) -> list[Row]:
    """Return all jobs as table rows, newest first."""
    make = cache.row if cache is not None else row
    return [make(parsed, now) for parsed in sorted(jobs, key=newest_first)]


def nothing(user: str, everywhere: bool) -> str:
    """Return the text to show if the list is empty. `everywhere` is True if the user may list the
    ServingJobs of all namespaces.
    """
    if everywhere:
        return "There are no ServingJobs. Create one: kubectl apply -f examples/lm.yaml"
    grant = "kubectl -n NAMESPACE create rolebinding NAME --clusterrole=convoy-servingjobs-viewer"
    return (
        f"There are no ServingJobs that {user} may list. An administrator of a namespace can grant access: "
        f"{grant} --user={quote(user)}"
    )


def counts(jobs: Iterable[ParsedObject[ServingJob]]) -> dict[str, int]:
    """Return the number of jobs in each state, ordered like `TONES`. States without jobs are left out."""
    found: dict[str, int] = {}
    for parsed in jobs:
        shown = state(parsed.model) if parsed.model else UNREADABLE
        found[shown] = found.get(shown, 0) + 1
    return {name: found[name] for name in TONES if name in found}
