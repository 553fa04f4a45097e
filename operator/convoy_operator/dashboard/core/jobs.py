"""The table of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from shlex import quote

from convoy_crds.goodput import Cause, totals
from convoy_crds.summaries import NOT_RECONCILED, WARNING_REASONS, age, restarts_in_window, step
from convoy_crds.terms import MANAGED_BY
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase
from convoy_operator.dashboard.core.formatting import clock, job_link, reason_text
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.row_cache import RowCache, newest_first
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

UNKNOWN = "New"
"""Phase shown for a job that the operator has not reconciled."""
UNREADABLE = "Unreadable"
DELETING = "Deleting"
"""Phase shown for a job that is being deleted."""
EXTERNAL = "External"
"""Phase shown for a job that another controller manages and that has no phase yet."""
TONES = {
    Phase.PENDING: Tone.BUSY,
    Phase.STARTING: Tone.BUSY,
    Phase.RUNNING: Tone.GOOD,
    Phase.RESTARTING: Tone.WARN,
    Phase.SUSPENDING: Tone.QUIET,
    Phase.SUSPENDED: Tone.QUIET,
    Phase.SUCCEEDED: Tone.GOOD,
    Phase.FAILED: Tone.BAD,
}
COLUMNS = (
    Column("Job", link=True),
    Column("Phase", badge=True),
    Column("Ready", number=True),
    Column("Step", number=True),
    Column("Progress", number=True),
    Column("Checkpoint", number=True),
    Column("Restarts", number=True),
    Column("Goodput", number=True),
    Column("Age", number=True),
    Column("Why", wide=True, brief=True),
)


def ours(job: TrainingJob) -> bool:
    """Return True if Convoy's operator manages the job."""
    return job.spec.managed_by in (None, MANAGED_BY)


def phase_name(job: TrainingJob) -> str:
    """Return the phase that pages show for the job."""
    if job.metadata.deletion_timestamp is not None:
        return DELETING
    return job.status.phase or (UNKNOWN if ours(job) else EXTERNAL)


def phase_tone(job: TrainingJob) -> Tone:
    """Return the tone of the job's phase: a warning if the job's reason is one of `WARNING_REASONS`."""
    phase = job.status.phase
    if job.metadata.deletion_timestamp is not None:
        return Tone.QUIET
    if phase is None:
        return Tone.WARN if ours(job) else Tone.QUIET
    if (
        phase not in TERMINAL
        and TONES[phase] in (Tone.BUSY, Tone.GOOD)
        and job.status.reason in WARNING_REASONS
    ):
        return Tone.WARN
    return TONES[phase]


def goodput(job: TrainingJob, now: datetime) -> float | None:
    """Return the productive share of the job's time until `now`; None if no time is recorded."""
    spent = totals(job.status.goodput, job.status.completion_time or now)
    whole = sum(spent.values())
    return spent.get(Cause.PRODUCTIVE, 0.0) / whole if whole else None


def done(job: TrainingJob) -> float | None:
    """Return the share of the job's steps that are complete; None if the total is not known."""
    progress = job.status.progress
    if progress is None or not progress.total_steps:
        return None
    return min(1.0, progress.step / progress.total_steps)


def why(job: TrainingJob) -> str:
    """Describe the reason for the job's state in one line."""
    status, leaves = job.status, job.metadata.deletion_timestamp
    text = reason_text(status.reason, status.message, status.conditions)
    if leaves is not None:
        text = "; ".join(part for part in (f"being deleted since {clock(leaves)}", text) if part)
    elif status.phase is None and ours(job):
        text = NOT_RECONCILED
    if not ours(job):
        text = "; ".join(part for part in (f"managed by {job.spec.managed_by}", text) if part)
    return text or "-"


def row(parsed: ParsedObject[TrainingJob], now: datetime) -> Row:
    """Return the table row of a job."""
    link, key = job_link(parsed.namespace, parsed.name), f"{parsed.namespace}/{parsed.name}"
    name = Cell(key, href=link)
    job = parsed.model
    if job is None:
        rest = (Cell("-"),) * (len(COLUMNS) - 3)
        return Row(key, (name, Cell(UNREADABLE, Tone.BAD), *rest, Cell(parsed.parse_error)), UNREADABLE)
    status = job.status
    point, restarts = status.saved, status.restarts.total
    share, ratio = done(job), goodput(job, now)
    created = job.metadata.creation_timestamp
    phase = phase_name(job)
    cells = (
        name,
        Cell(phase, phase_tone(job)),
        Cell(status.ready or "-"),
        Cell(step(job), order=float(status.progress.step) if status.progress else None),
        Cell(f"{share:.0%}", order=share, share=share) if share is not None else Cell("-"),
        Cell(f"{age(point.time, now)} ago, {point.tier}", order=-point.time.timestamp())
        if point
        else Cell("-"),
        Cell(str(restarts), Tone.WARN if restarts_in_window(job, now) else Tone.PLAIN, order=float(restarts)),
        Cell(f"{ratio:.0%}", order=ratio) if ratio is not None else Cell("-"),
        Cell(age(created, now), order=-created.timestamp() if created else None),
        Cell(why(job)),
    )
    return Row(key, cells, phase)


def rows(
    jobs: Iterable[ParsedObject[TrainingJob]], now: datetime, cache: RowCache[TrainingJob] | None = None
) -> list[Row]:
    """Return all jobs as table rows, newest first."""
    make = cache.row if cache is not None else row
    return [make(parsed, now) for parsed in sorted(jobs, key=newest_first)]


def nothing(user: str, everywhere: bool) -> str:
    """Return the text to show if the list of jobs is empty. `everywhere` is True if the user may list the
    jobs of all namespaces.
    """
    if everywhere:
        return "There are no TrainingJobs. Create one: kubectl apply -f examples/gpt.yaml"
    grant = "kubectl -n NAMESPACE create rolebinding NAME --clusterrole=convoy-trainingjobs-viewer"
    return (
        f"There are no TrainingJobs that {user} may list. An administrator of a namespace can grant access: "
        f"{grant} --user={quote(user)}"
    )


def counts(jobs: Iterable[ParsedObject[TrainingJob]]) -> dict[str, int]:
    """Return the number of jobs in each phase, ordered like `Phase`. Phases without jobs are left out."""
    found: dict[str, int] = {}
    for parsed in jobs:
        phase = phase_name(parsed.model) if parsed.model else UNREADABLE
        found[phase] = found.get(phase, 0) + 1
    order = [*(phase.value for phase in Phase), UNKNOWN, EXTERNAL, DELETING, UNREADABLE]
    return {phase: found[phase] for phase in order if phase in found}
