"""The command requests, which shows how the requests of a job to its spot workers ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from convoy.cli.cluster import Context, Failure, Name, Namespace, connect
from convoy.cli.output import Output
from convoy.cli.table import new_table, print_table
from convoy_crds.trainingjob import TrainingJob

RESULT = "requests"
"""Field of `status.result` in which an engine leaves the counts of its ledger."""
MEANINGS = {
    "planned": "requests in all",
    "open": "requests that have not ended",
    "consumed": "results that the trainer used",
    "expired": "requests whose results were too old or never came",
    "superseded": "requests that the planner dropped",
    "leased": "leases of workers",
    "resumed": "leases that went on from saved progress",
    "committed": "times that progress was saved",
    "surrendered": "leases that workers gave back",
    "timedOut": "leases that timed out",
    "revoked": "leases of lost workers",
    "exhausted": "requests that expired after too many leases without progress",
    "duplicates": "results that came again",
    "late": "results that came after the end of their request",
    "unknown": "messages about requests that are no longer known",
    "staleCommits": "saved progress that was behind",
    "staleResults": "results that were too old",
}
ENDINGS = ("open", "consumed", "expired", "superseded")


def requests(
    name: Name,
    output: Annotated[Output, typer.Option("--format", help="Output format.")] = Output.TEXT,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Show the requests of a job to its spot workers: how they ended, and what happened on the way.

    The engine leaves the counts in the result of the job, so they are there after the job has succeeded. The
    exit status is 1 if requests are missing or were counted twice.
    """
    counts = _counts(connect(namespace, context).training_jobs.get(name))
    if output is Output.JSON:
        typer.echo(json.dumps(counts, indent=2))
    else:
        _print(counts)
    ended = sum(counts.get(one, 0) for one in ENDINGS)
    if ended != counts["planned"]:
        raise Failure(
            f"trainingjob/{name}: {counts['planned']} requests were planned, but {ended} are open or have "
            "ended; report this with the log of the trainer"
        )


def _counts(job: TrainingJob) -> dict[str, int]:
    """Return the counts in the result of a job. Raises Failure without any."""
    name, result = job.metadata.name, job.status.result
    if result is None:
        phase = job.status.phase or "not reconciled yet"
        raise Failure(
            f"trainingjob/{name}: status.result is empty ({phase}); a job has it after it has succeeded"
        )
    found: Any = result.get(RESULT)
    if not isinstance(found, Mapping) or not isinstance(found.get("planned"), int):
        raise Failure(
            f"trainingjob/{name}: status.result has no field {RESULT!r}; only engines with spot workers "
            "set it"
        )
    return {str(key): value for key, value in found.items() if isinstance(value, int)}


def _print(counts: Mapping[str, int]) -> None:
    shown = new_table()
    shown.add_column("COUNT")
    shown.add_column("NUMBER", justify="right")
    shown.add_column("MEANING")
    for key, value in counts.items():
        shown.add_row(key, str(value), MEANINGS.get(key, ""))
    print_table(shown)
