"""The command ls, which lists the newest generation of each tier and all generations in the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from convoy.cli import table
from convoy.cli.checkpoint.contents import Contents, Row, choose_generation, label, refusal, rows
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    Operator,
    SavedJob,
    StoreName,
    Uid,
    no_store_reason,
)
from convoy.cli.cluster import Context, Name, Namespace
from convoy.cli.output import Output
from convoy_controllers.checkpoint.restore import Restore
from convoy_crds.summaries import age
from convoy_crds.trainingjob import TrainingJob

HIDE_ORDER = ("STEP", "TORCH", "SAVED", "SHARDS", "WORLD", "LINEAGE", "NEW", "WHOLE")
"""Columns to hide if the terminal is too narrow, in the order in which they are hidden."""
_NUMBERS = frozenset({"STEP", "SHARDS", "WORLD", "SIZE", "NEW"})


def ls(
    name: Name,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """List the checkpoints that a job has saved.

    The first table shows the newest generation of each tier. The second table shows all generations in the
    store. SIZE is the number of bytes that a generation needs. NEW is the number of these bytes that the
    previous generation does not need. LINEAGE is `no` if a later incarnation did not continue from this
    generation but from an older one; the job never restores a generation with `no`. WHOLE is `yes` if all
    objects of the generation exist in the right size. RESTORE is `yes` for the generation that a restart
    restores if the nodes' memory has no checkpoint.
    """
    saved_job, now = SavedJob.find(name, store, uid, namespace, context), datetime.now(UTC)
    if output is Output.TEXT and saved_job.job is not None:
        _print(("TIER", "GENERATION", "AGE"), watermarks(saved_job.job, now), "no tier has a generation yet")
    contents = saved_job.open_store(operator, endpoint, folder).read() if saved_job.store else None
    if output is Output.JSON:
        typer.echo(json.dumps(as_json(saved_job, contents), indent=2))
    elif contents is not None:
        if saved_job.job is not None:
            typer.echo("")
        _print_store(name, contents, now)
    elif saved_job.job is not None:
        typer.echo(no_store_reason(saved_job.job))


def watermarks(job: TrainingJob, now: datetime) -> list[tuple[str, str, str]]:
    """Return tier, generation and age of the newest whole generation of each tier, in the order local,
    peer, remote.
    """
    status = job.status.checkpoint
    if status is None:
        return []
    marks = {tier: getattr(status.watermarks, tier) for tier in ("local", "peer", "remote")}
    return [
        (tier, f"{mark.incarnation}/{mark.step}", age(mark.time, now)) for tier, mark in marks.items() if mark
    ]


def cells(row: Row, now: datetime) -> dict[str, str]:
    """Return the text of each column in the row of one generation, by name of the column."""
    return {
        "GENERATION": label(row.generation),
        "STEP": str(row.generation.step),
        "SAVED": _stamp(row.saved),
        "AGE": age(row.saved, now),
        "SHARDS": str(row.shards),
        "WORLD": str(row.world),
        "TORCH": row.torch or "-",
        "SIZE": table.format_bytes(row.bytes),
        "NEW": table.format_bytes(row.new_bytes),
        "LINEAGE": _yes_no(row.in_lineage),
        "WHOLE": _yes_no(row.whole),
        "RESTORE": _yes_no(row.restored),
    }


def conclusion(name: str, contents: Contents) -> str:
    """Return a sentence that names the generation that a restart restores if no node has a checkpoint in
    memory.
    """
    plan = choose_generation(contents)
    if isinstance(plan, Restore):
        best = label(plan.record.generation)
        return f"If nothing is left in memory, a restart of {name} reads {best}."
    return f"{refusal(name, None, plan)}."


def as_json(saved_job: SavedJob, contents: Contents | None) -> dict[str, Any]:
    """Return the data of both tables as JSON values."""
    status = saved_job.job.status.checkpoint if saved_job.job is not None else None
    return {
        "job": saved_job.name,
        "namespace": saved_job.client.namespace,
        "uid": saved_job.uid,
        "checkpoint": status.to_dict() if status is not None else None,
        "store": saved_job.store or None,
        "generations": [_entry(row) for row in rows(contents)] if contents is not None else None,
        "malformed": list(contents.malformed) if contents is not None else [],
    }


def _entry(row: Row) -> dict[str, Any]:
    return {
        "generation": label(row.generation),
        "incarnation": row.generation.incarnation,
        "step": row.generation.step,
        "saved": _stamp(row.saved) if row.saved is not None else None,
        "shards": row.shards,
        "world": row.world,
        "torch": row.torch,
        "bytes": row.bytes,
        "newBytes": row.new_bytes,
        "inLineage": row.in_lineage,
        "whole": row.whole,
        "restored": row.restored,
    }


def _print_store(name: str, contents: Contents, now: datetime) -> None:
    for one in contents.malformed:
        typer.echo(f"cannot be read: {one}", err=True)
    lines = [cells(row, now) for row in rows(contents)]
    if lines:
        widths = {head: max(len(head), *(len(one[head]) for one in lines)) for head in lines[0]}
        heads = table.fitting_columns(widths, HIDE_ORDER, table.terminal_width())
        _print(heads, [[one[head] for head in heads] for one in lines], "")
    typer.echo(conclusion(name, contents))


def _print(heads: Sequence[str], lines: Sequence[Sequence[str]], none: str) -> None:
    if not lines:
        typer.echo(none)
        return
    made = table.new_table()
    for head in heads:
        made.add_column(head, no_wrap=True, justify="right" if head in _NUMBERS else "left")
    for one in lines:
        made.add_row(*map(Text, one))
    table.print_table(made)


def _stamp(time: datetime | None) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}" if time is not None else "-"


def _yes_no(holds: bool) -> str:
    return "yes" if holds else "no"
