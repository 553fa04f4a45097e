"""`convoy checkpoint export`: the whole tensors of a generation, for programs that know nothing of Convoy."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from convoy.cli.checkpoint.contents import Contents, ends_in_journal, label, newest_base
from convoy.cli.checkpoint.fetch import place, take
from convoy.cli.checkpoint.files import fresh, refuse, scratch
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    Operator,
    StoreName,
    Subject,
    Uid,
    Which,
    generation_of,
)
from convoy.cli.cluster import Context, Failure, Name, Namespace
from convoy_controllers.checkpoint.restore import Restore

SUFFIX = ".safetensors"


class Format(StrEnum):
    """What is written."""

    SAFETENSORS = "safetensors"
    """One file."""
    DCP = "dcp"
    """A folder of torch.distributed.checkpoint."""


def export(
    name: Name,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="PATH", help="A file that is not there, or for dcp a folder that is empty."
        ),
    ],
    generation: Which = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", help=f"safetensors when left out and PATH ends with {SUFFIX}, else dcp."),
    ] = None,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write the tensors of a generation for other programs.

    They are put together from its shards. Values that are no tensors go into the metadata of a safetensors
    file, as JSON. Beside PATH there must be room for the shards meanwhile.
    """
    which, form = generation_of(generation), form or format_of(to)
    need_torch()
    refuse(to, folder=form is Format.DCP)
    subject = Subject.find(name, store, uid, namespace, context)
    part = subject.reach(operator, endpoint, folder)
    contents = part.look()
    with scratch(to) as beside:
        plan = take(part, contents, which, beside / "shards", lambda found: journal_refusal(found, contents))
        facts = facts_of(subject, plan)
        count = _write(plan, beside / "shards", to, form, facts)
    typer.echo(f"{name} {label(plan.record.generation)}: {count} tensors in {to}")


def format_of(to: Path) -> Format:
    """What is written when nothing else is said."""
    return Format.SAFETENSORS if to.suffix == SUFFIX else Format.DCP


def journal_refusal(plan: Restore, contents: Contents) -> str:
    """Why a generation cannot be exported; empty when it can."""
    if not ends_in_journal(plan):
        return ""
    why = (
        f"{label(plan.record.generation)} ends in a journal: its tensors are there once the job itself has "
        "replayed it, with its own model and optimizer"
    )
    base = newest_base(contents)
    if base is None:
        return f"{why}; no generation in the store stands without one"
    return f"{why}; the newest that stands without one: --generation {label(base)}"


def facts_of(subject: Subject, plan: Restore) -> dict[str, Any]:
    """What is said of the generation beside its tensors."""
    record = plan.record
    return {
        "job": subject.name,
        "namespace": subject.client.namespace,
        "uid": subject.uid,
        "incarnation": record.generation.incarnation,
        "step": record.generation.step,
        "world": record.world,
        "torch": record.torch,
        "saved": record.saved,
    }


def need_torch() -> None:
    """Failure when there is no torch."""
    try:
        import torch  # noqa: F401, PLC0415
    except ImportError as error:
        raise Failure(
            "tensors are put together by torch, which is not installed here: pip install torch "
            "(`convoy checkpoint restore` needs none)"
        ) from error


def _write(plan: Restore, shards: Path, to: Path, form: Format, facts: dict[str, Any]) -> int:
    """Writes what is asked for; how many tensors. Failure when the shards are none."""
    from convoy.cli.checkpoint import tensors  # noqa: PLC0415

    manifests = [links[0].manifest for links in plan.shards.values()]
    try:
        whole = tensors.Whole([tensors.opened(place(shards, one)) for one in manifests])
        with fresh(to, folder=form is Format.DCP) as partial:
            if form is Format.DCP:
                tensors.write_dcp(partial, whole)
            else:
                tensors.write_safetensors(partial, whole, {"generation": json.dumps(facts)})
    except tensors.ShardError as error:
        raise Failure(f"{label(plan.record.generation)}: {error}") from error
    return len(whole.names)
