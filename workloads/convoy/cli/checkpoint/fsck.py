"""The command fsck, which checks a whole store and deletes orphaned objects."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from convoy.cli import table
from convoy.cli.change import Yes
from convoy.cli.checkpoint.contents import stored_chunks
from convoy.cli.checkpoint.findings import Findings, count, find_faults
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    JobStore,
    Operator,
    connect,
    job_store,
    list_all_jobs,
    store_errors_as_failures,
)
from convoy.cli.checkpoint.verify import MAX_LINES, find_damaged
from convoy.cli.cluster import Context, Failure
from convoy.cli.cluster import connect as connect_cluster
from convoy_controllers.checkpoint.retention import Keep
from convoy_crds.trainingjob import TrainingJob

DELETED = "(absent)"
"""Text in the column JOB for a job that is not in the cluster."""
_TEXT_COLUMNS = frozenset({"NAMESPACE", "UID", "JOB"})


def fsck(
    name: Annotated[str, typer.Argument(metavar="STORE", help="Name of the CheckpointStore.")],
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every chunk that a generation needs and check its digest."),
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Delete orphaned objects older than 30 minutes.")
    ] = False,
    yes: Yes = False,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    context: Context = None,
) -> None:
    """Check a whole store for damaged, missing and orphaned objects.

    An orphaned object is an object that no generation needs, for example a chunk of an interrupted upload.
    GARBAGE is, for each job, the size of the objects that its next garbage collection will delete. The exit
    status is 1 if an object is damaged or missing.
    """
    client = connect_cluster(None, context)
    blobs = connect(client, name, operator, endpoint, folder)
    from convoy_agents.tiercheck.stores.garbage_collection import GRACE_SECONDS  # noqa: PLC0415
    from convoy_agents.tiercheck.stores.job_folders import job_folders  # noqa: PLC0415

    with store_errors_as_failures():
        found = job_folders(blobs)
    jobs = list_all_jobs(client)
    known = None if jobs is None else {job.metadata.uid: job for job in jobs}
    parts: list[JobStore] = []
    lines: list[dict[str, str]] = []
    results: list[Findings] = []
    for job_folder in found:
        one = job_store(
            blobs, job_folder.namespace, job_folder.uid, f"{job_folder.namespace}/{job_folder.uid}"
        )
        job = known.get(job_folder.uid) if known is not None else None
        finding = check_job(one, deep, retention_of(job), GRACE_SECONDS)
        parts.append(one)
        results.append(finding)
        shown = job.metadata.name if job is not None else ("-" if known is None else DELETED)
        lines.append({"NAMESPACE": job_folder.namespace, "UID": job_folder.uid, "JOB": shown, **row(finding)})
    _print(lines)
    for one, finding in zip(parts, results, strict=True):
        _print_faults(one.name, [*finding.damaged, *finding.missing])
    for text in summary(name, results):
        typer.echo(text)
    if repair:
        _repair(parts, results, yes)
    if any(one.faults for one in results):
        raise typer.Exit(1)


def check_job(one: JobStore, deep: bool, keep: Keep, grace_seconds: float) -> Findings:
    """Return the findings about one job. If `deep` is True, also read the job's chunks and check their
    digests. Raises Failure if the store fails.
    """
    contents = one.read()
    damaged: dict[str, str] = {}
    if deep and (damaged := find_damaged(one, stored_chunks(contents, contents.inventory.records.values()))):
        # Read the contents again, because the job may have deleted a generation during the check. Chunks that
        # only the deleted generation needed do not count as damaged or missing.
        contents = one.read()
    return find_faults(contents, keep, grace_seconds, damaged)


def retention_of(job: TrainingJob | None) -> Keep:
    """Return the rule for which generations a job keeps in its store. For a job that is not in the cluster,
    return the rule with default values.
    """
    remote = job.spec.checkpoint.tiers.remote if job is not None else None
    return Keep(remote.keep_last, remote.keep_every_steps) if remote is not None else Keep()


def row(finding: Findings) -> dict[str, str]:
    """Return the text of each column in the row of one job, by name of the column."""
    return {
        "GENERATIONS": str(finding.generations),
        "SIZE": table.format_bytes(finding.size),
        "DAMAGED": str(len(finding.damaged)),
        "MISSING": str(len(finding.missing)),
        "ORPHANED": table.format_bytes(finding.orphaned_bytes),
        "GARBAGE": table.format_bytes(finding.garbage_bytes),
    }


def summary(name: str, results: Sequence[Findings]) -> list[str]:
    """Return one or two lines about the whole store."""
    damaged, missing = sum(len(one.damaged) for one in results), sum(len(one.missing) for one in results)
    size = table.format_bytes(sum(one.size for one in results))
    generations = sum(one.generations for one in results)
    jobs = f"{len(results)} job{'s' if len(results) != 1 else ''}"
    lines = [f"{name}: {jobs}, {generations} generations, {size}; {damaged} damaged, {missing} missing"]
    if orphaned := sum(count(one.orphaned) for one in results):
        expired = sum(count(one.expired) for one in results)
        orphaned_size = table.format_bytes(sum(one.orphaned_bytes for one in results))
        expired_size = table.format_bytes(sum(one.expired_bytes for one in results))
        lines.append(
            f"orphaned: {orphaned} objects ({orphaned_size}), of which --repair may delete {expired} "
            f"({expired_size}); it keeps objects that are less than 30 minutes old"
        )
    return lines


def _repair(parts: Sequence[JobStore], results: Sequence[Findings], yes: bool) -> None:
    """Delete the orphaned objects that are more than 30 minutes old (`Findings.expired`). Raises Failure if
    the user cannot be asked for confirmation or if the store fails.
    """
    wanted = sum(count(one.expired) for one in results)
    if not wanted:
        typer.echo("nothing to delete")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise Failure(
                f"stdin is not a terminal, so Convoy cannot ask: add --yes to delete {wanted} objects"
            )
        typer.confirm(f"Delete {wanted} objects?", abort=True, err=True)
    done = 0
    for one, finding in zip(parts, results, strict=True):
        if count(finding.expired):
            with store_errors_as_failures():
                done += count(one.store.delete(finding.expired))
    left = wanted - done
    remain = "a generation needs them now, or the time limit was reached; run the command again"
    typer.echo(f"{done} objects deleted" + (f"; {left} remain: {remain}" if left > 0 else ""))


def _print_faults(name: str, wrong: Sequence[str]) -> None:
    for one in wrong[:MAX_LINES]:
        typer.echo(f"{name}: {one}", err=True)
    if len(wrong) > MAX_LINES:
        typer.echo(f"{name}: ... and {len(wrong) - MAX_LINES} more", err=True)


def _print(lines: Sequence[dict[str, str]]) -> None:
    if not lines:
        return
    made = table.new_table()
    for head in lines[0]:
        made.add_column(head, no_wrap=True, justify="left" if head in _TEXT_COLUMNS else "right")
    for one in lines:
        made.add_row(*map(Text, one.values()))
    table.print_table(made)
