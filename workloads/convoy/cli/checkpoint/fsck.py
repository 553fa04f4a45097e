"""`convoy checkpoint fsck`: looks through a whole store, and deletes what nothing needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from convoy.cli import table
from convoy.cli.change import Yes
from convoy.cli.checkpoint.contents import readable
from convoy.cli.checkpoint.findings import Findings, conclude, count
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    Operator,
    Part,
    asking,
    connect,
    every_job,
    part,
)
from convoy.cli.checkpoint.verify import MAX_LINES, examined
from convoy.cli.cluster import Context, Failure
from convoy.cli.cluster import connect as connect_cluster
from convoy_controllers.checkpoint.retention import Keep
from convoy_crds.trainingjob import TrainingJob

GONE = "gone"
"""In place of the name of a job that is not in the cluster."""
_WORDS = frozenset({"NAMESPACE", "UID", "JOB"})


def fsck(
    name: Annotated[str, typer.Argument(metavar="STORE", help="Name of the CheckpointStore.")],
    deep: Annotated[bool, typer.Option("--deep", help="Read every chunk that a generation needs.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Delete what is orphaned and older than half an hour.")
    ] = False,
    yes: Yes = False,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    context: Context = None,
) -> None:
    """Look through a whole store.

    It says what is damaged, missing and orphaned. Orphaned is what no generation needs, such as the rest of
    an upload that broke off. GARBAGE is what the job itself deletes next. The status is 1 when something is
    damaged or missing.
    """
    client = connect_cluster(None, context)
    blobs = connect(client, name, operator, endpoint, folder)
    from convoy_agents.tiercheck.stores.garbage_collection import GRACE_SECONDS  # noqa: PLC0415
    from convoy_agents.tiercheck.stores.job_folders import job_folders  # noqa: PLC0415

    with asking():
        found = job_folders(blobs)
    jobs = every_job(client)
    known = None if jobs is None else {job.metadata.uid: job for job in jobs}
    parts: list[Part] = []
    lines: list[dict[str, str]] = []
    results: list[Findings] = []
    for home in found:
        one = part(blobs, home.namespace, home.uid, f"{home.namespace}/{home.uid}")
        job = known.get(home.uid) if known is not None else None
        finding = looked(one, deep, keep_of(job), GRACE_SECONDS)
        parts.append(one)
        results.append(finding)
        shown = job.metadata.name if job is not None else ("-" if known is None else GONE)
        lines.append({"NAMESPACE": home.namespace, "UID": home.uid, "JOB": shown, **line(finding)})
    _print(lines)
    for one, finding in zip(parts, results, strict=True):
        _say(one.name, [*finding.damaged, *finding.missing])
    for text in summary(name, results):
        typer.echo(text)
    if repair:
        _repair(parts, results, yes)
    if any(one.faults for one in results):
        raise typer.Exit(1)


def looked(one: Part, deep: bool, keep: Keep, grace_seconds: float) -> Findings:
    """What is to be said of a job. Failure when the store fails."""
    contents = one.look()
    damaged: dict[str, str] = {}
    if deep and (damaged := examined(one, readable(contents, contents.inventory.records.values()))):
        # The job may have deleted what could not be read.
        contents = one.look()
    return conclude(contents, keep, grace_seconds, damaged)


def keep_of(job: TrainingJob | None) -> Keep:
    """What a job keeps in its store."""
    remote = job.spec.checkpoint.tiers.remote if job is not None else None
    return Keep(remote.keep_last, remote.keep_every_steps) if remote is not None else Keep()


def line(finding: Findings) -> dict[str, str]:
    """What was found, by column."""
    return {
        "GENERATIONS": str(finding.generations),
        "SIZE": table.amount(finding.size),
        "DAMAGED": str(len(finding.damaged)),
        "MISSING": str(len(finding.missing)),
        "ORPHANED": table.amount(finding.orphaned_bytes),
        "GARBAGE": table.amount(finding.garbage_bytes),
    }


def summary(name: str, results: Sequence[Findings]) -> list[str]:
    """All jobs together, in a sentence or two."""
    damaged, missing = sum(len(one.damaged) for one in results), sum(len(one.missing) for one in results)
    size = table.amount(sum(one.size for one in results))
    generations = sum(one.generations for one in results)
    jobs = f"{len(results)} job{'s' if len(results) != 1 else ''}"
    lines = [f"{name}: {jobs}, {generations} generations, {size}; {damaged} damaged, {missing} missing"]
    if orphaned := sum(count(one.orphaned) for one in results):
        expired = sum(count(one.expired) for one in results)
        lines.append(
            f"orphaned: {orphaned} objects ({table.amount(sum(one.orphaned_bytes for one in results))}), "
            f"of which --repair may delete {expired} "
            f"({table.amount(sum(one.expired_bytes for one in results))}); the others are too new"
        )
    return lines


def _repair(parts: Sequence[Part], results: Sequence[Findings], yes: bool) -> None:
    """Deletes what is orphaned and old. Failure when nobody agrees, or the store fails."""
    wanted = sum(count(one.expired) for one in results)
    if not wanted:
        typer.echo("nothing is to be deleted")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("say --yes to delete")
        typer.confirm(f"Delete {wanted} objects?", abort=True, err=True)
    done = 0
    for one, finding in zip(parts, results, strict=True):
        if count(finding.expired):
            with asking():
                done += count(one.store.delete(finding.expired))
    left = f"; {wanted - done} are left: they are needed by now, or run it again" if done < wanted else ""
    typer.echo(f"{done} objects deleted{left}")


def _say(name: str, wrong: Sequence[str]) -> None:
    for one in wrong[:MAX_LINES]:
        typer.echo(f"{name}: {one}", err=True)
    if len(wrong) > MAX_LINES:
        typer.echo(f"{name}: ... and {len(wrong) - MAX_LINES} more", err=True)


def _print(lines: Sequence[dict[str, str]]) -> None:
    if not lines:
        return
    made = table.plain()
    for head in lines[0]:
        made.add_column(head, no_wrap=True, justify="left" if head in _WORDS else "right")
    for one in lines:
        made.add_row(*map(Text, one.values()))
    table.show(made)
