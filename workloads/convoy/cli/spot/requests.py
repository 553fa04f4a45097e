"""The command requests, which shows how the requests of a job to its spot workers ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from convoy.cli.cluster import Context, Failure, Name, Namespace, connect
from convoy.cli.output import Output
from convoy.cli.table import new_table, print_table
from convoy_crds.summaries import age
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.spotlight.request_counts import ENDINGS, MEANINGS, PREFIX, from_metrics

RESULT = "requests"
"""Field of `status.result` in which an engine leaves the counts of its ledger."""
UNKNOWN = "not reconciled yet"


@dataclass(frozen=True, slots=True)
class Found:
    """The counts of a job's ledger."""

    counts: Mapping[str, int]
    step: int | None
    """Step after which the ledger was counted."""
    time: datetime | None
    """Time at which the counts were reported."""
    final: bool
    """True if the counts are in the result of the job."""


def requests(
    name: Name,
    output: Annotated[Output, typer.Option("--format", help="Output format.")] = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Show how the requests to spot workers ended.

    The job must use the engine spotlight. While it runs, the counts are those after its last reported step,
    which the first line names. After the job has succeeded they are in its result. The exit status
    is 1 if requests are missing or were counted twice.
    """
    job = connect(namespace, context).training_jobs.get(name)
    found = find_counts(job)
    if output is Output.JSON:
        typer.echo(json.dumps(_fields(job, found), indent=2))
    else:
        typer.echo(headline(job, found, datetime.now(UTC)))
        _print(found.counts)
    ended = sum(found.counts.get(one, 0) for one in ENDINGS)
    if ended != found.counts["planned"]:
        raise Failure(
            f"trainingjob/{name}: {found.counts['planned']} requests were planned, but {ended} are open or "
            "have ended; report this with the log of the trainer"
        )


def find_counts(job: TrainingJob) -> Found:
    """Return the counts in the result of a job, else those in its metrics. Raises Failure without any."""
    name, status, progress = job.metadata.name, job.status, job.status.progress
    in_result: Any = (status.result or {}).get(RESULT)
    if isinstance(in_result, Mapping) and isinstance(in_result.get("planned"), int):
        counts = {str(key): value for key, value in in_result.items() if isinstance(value, int)}
        return Found(counts, progress.step if progress else None, status.completion_time, True)
    metrics = {one.name: one for one in progress.metrics} if progress else {}
    counts = from_metrics({key: one.value for key, one in metrics.items()})
    if progress is None or not counts:
        raise Failure(
            f"trainingjob/{name}: neither status.result.{RESULT} nor metrics {PREFIX}* in status.progress "
            f"({status.phase or UNKNOWN}); only engines with spot workers report them, after each step"
        )
    return Found(counts, metrics[f"{PREFIX}planned"].step, progress.time, False)


def headline(job: TrainingJob, found: Found, now: datetime) -> str:
    """Return the sentence that says when the ledger was counted."""
    start = f"trainingjob/{job.metadata.name}: {job.status.phase or UNKNOWN}"
    if found.final:
        return f"{start}; counts at the end of the job"
    reported = f", reported {age(found.time, now)} ago" if found.time else ""
    return f"{start}; counts after step {found.step}{reported}"


def _fields(job: TrainingJob, found: Found) -> dict[str, Any]:
    return {
        "job": job.metadata.name,
        "phase": job.status.phase,
        "final": found.final,
        "step": found.step,
        "time": found.time and found.time.isoformat(),
        "requests": found.counts,
    }


def _print(counts: Mapping[str, int]) -> None:
    shown = new_table()
    shown.add_column("COUNT")
    shown.add_column("NUMBER", justify="right")
    shown.add_column("MEANING")
    for key, value in counts.items():
        shown.add_row(key, str(value), MEANINGS.get(key, ""))
    print_table(shown)
