"""The command export, which assembles the tensors of a generation and writes them for other programs."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from convoy.cli.checkpoint.contents import Contents, ends_in_journal, label, newest_base
from convoy.cli.checkpoint.fetch import download_generation, shard_path
from convoy.cli.checkpoint.files import require_free, temporary_folder, write_atomically
from convoy.cli.checkpoint.store_access import (
    OPERATOR,
    Endpoint,
    Folder,
    Operator,
    SavedJob,
    StoreName,
    Uid,
    Which,
    parse_generation,
)
from convoy.cli.cluster import Context, Failure, Name, Namespace
from convoy_controllers.checkpoint.restore import Restore

SUFFIX = ".safetensors"


class Format(StrEnum):
    """File formats in which `convoy checkpoint export` can write a generation."""

    SAFETENSORS = "safetensors"
    """One file in the format of the library safetensors."""
    DCP = "dcp"
    """A folder in the format of torch.distributed.checkpoint."""


def export(
    name: Name,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="PATH",
            help="File to create. For format dcp: folder to create, or an existing empty folder.",
        ),
    ],
    generation: Which = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help=f"Format of the export. Default: safetensors if PATH ends with {SUFFIX}, else dcp.",
        ),
    ] = None,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Export the tensors of a generation for other programs.

    The command assembles the tensors from the shards of the generation. It first downloads the shards to
    the file system of PATH, which needs space for the shards and for the export. In a safetensors file,
    values that are not tensors are stored as JSON in the metadata.
    """
    which, form = parse_generation(generation), form or format_of(to)
    require_torch("checkpoint export", " (`convoy checkpoint restore` works without torch)")
    require_free(to, folder=form is Format.DCP)
    saved_job = SavedJob.find(name, store, uid, namespace, context)
    part = saved_job.open_store(operator, endpoint, folder)
    contents = part.read()
    with temporary_folder(to) as beside:
        plan = download_generation(
            part, contents, which, beside / "shards", lambda found: journal_refusal(found, contents)
        )
        metadata = metadata_of(saved_job, plan)
        count = _write(plan, beside / "shards", to, form, metadata)
    typer.echo(f"{name} {label(plan.record.generation)}: {count} tensors in {to}")


def format_of(to: Path) -> Format:
    """Return the format that `convoy checkpoint export` uses without --format."""
    return Format.SAFETENSORS if to.suffix == SUFFIX else Format.DCP


def journal_refusal(plan: Restore, contents: Contents) -> str:
    """Return the reason why a generation cannot be exported; an empty text if it can be exported."""
    if not ends_in_journal(plan):
        return ""
    why = (
        f"{label(plan.record.generation)} ends in a journal, which only the job can replay, with its own "
        "model and optimizer"
    )
    base = newest_base(contents)
    if base is None:
        return f"{why}; no generation in the store is without a journal"
    return f"{why}; export the newest one without a journal: --generation {label(base)}"


def metadata_of(saved_job: SavedJob, plan: Restore) -> dict[str, Any]:
    """Return the facts about the generation that the export stores beside the tensors."""
    record = plan.record
    return {
        "job": saved_job.name,
        "namespace": saved_job.client.namespace,
        "uid": saved_job.uid,
        "incarnation": record.generation.incarnation,
        "step": record.generation.step,
        "world": record.world,
        "torch": record.torch,
        "saved": record.saved,
    }


def require_torch(command: str, hint: str = "") -> None:
    """Raise Failure, with the command that needs torch, if torch is not installed."""
    try:
        import torch  # noqa: F401, PLC0415
    except ImportError as error:
        raise Failure(
            f"`convoy {command}` needs torch, which is not installed: pip install torch{hint}"
        ) from error


def _write(plan: Restore, shards: Path, to: Path, form: Format, metadata: dict[str, Any]) -> int:
    """Write the export and return its number of tensors. Raises Failure if a shard is not valid."""
    from convoy_workloads.tensors.dcp import write_dcp  # noqa: PLC0415
    from convoy_workloads.tensors.safetensors import write_safetensors  # noqa: PLC0415
    from convoy_workloads.tensors.whole import ShardError, Whole, open_shard  # noqa: PLC0415

    manifests = [links[0].manifest for links in plan.shards.values()]
    try:
        whole = Whole([open_shard(shard_path(shards, one)) for one in manifests])
        with write_atomically(to, folder=form is Format.DCP) as partial:
            if form is Format.DCP:
                write_dcp(partial, whole)
            else:
                write_safetensors(partial, whole, {"generation": json.dumps(metadata)})
    except ShardError as error:
        raise Failure(f"{label(plan.record.generation)}: {error}") from error
    return len(whole.names)
