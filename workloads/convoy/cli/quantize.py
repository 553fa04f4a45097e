"""The command quantize, which makes a quantised generation of a trained language model."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from convoy.cli.checkpoint.export import journal_refusal, require_torch
from convoy.cli.checkpoint.fetch import download_generation
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
from convoy.cli.cluster import Context, Failure, Namespace
from convoy.cli.table import format_bytes, new_table, print_table

if TYPE_CHECKING:
    from convoy_workloads.engines.tilefuse.generation import Report


class Scheme(StrEnum):
    """Quantisation schemes: 4-bit or 8-bit weights, with 16-bit activations."""

    W4A16 = "w4a16"
    """Weights of 4 bits, in the format AWQ."""
    W8A16 = "w8a16"
    """Weights of 8 bits, in the format compressed-tensors."""


def quantize(
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Folder to create.")],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="TrainingJob whose checkpoint is quantised, unless --model is given."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="PATH",
            help="Folder or safetensors file with the model, such as `convoy checkpoint export` writes.",
        ),
    ] = None,
    scheme: Annotated[Scheme, typer.Option("--scheme", help="Bits of a weight.")] = Scheme.W4A16,
    group_size: Annotated[
        int,
        typer.Option("--group-size", min=32, help="Number of inputs that share a scale; a multiple of 32."),
    ] = 128,
    calibration_samples: Annotated[
        int,
        typer.Option(
            "--calibration-samples",
            min=0,
            max=4096,
            help="Number of texts for the search of scales. 0 rounds each weight to the nearest code.",
        ),
    ] = 32,
    clip: Annotated[
        bool, typer.Option("--clip/--no-clip", help="Search the range of each group too.")
    ] = True,
    heads: Annotated[
        int, typer.Option("--heads", min=0, help="Number of attention heads, if the model's files lack it.")
    ] = 0,
    generation: Which = None,
    store: StoreName = None,
    uid: Uid = None,
    endpoint: Endpoint = None,
    folder: Folder = None,
    operator: Operator = OPERATOR,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Quantise a language model for the engine tilefuse.

    The model is a checkpoint of a TrainingJob with the engine gpt, or a local folder of gpt or of the family
    Llama. The new folder has the weights in a public format, their packed form, and the report
    quantisation.json. Copy the folder to a volume and name it in spec.model.volume of a ServingJob.
    """
    if (name is None) == (model is None):
        raise Failure("give the NAME of a TrainingJob or --model PATH, and not both")
    if group_size % 32:
        raise Failure(f"--group-size {group_size}: must be a multiple of 32")
    which = parse_generation(generation)
    require_torch("quantize")
    require_free(to, folder=True)
    with contextlib.ExitStack() as stack:
        if model is None:
            saved_job = SavedJob.find(name or "", store, uid, namespace, context)
            part = saved_job.open_store(operator, endpoint, folder)
            contents = part.read()
            model = stack.enter_context(temporary_folder(to)) / "generation"
            download_generation(part, contents, which, model, lambda found: journal_refusal(found, contents))
        progress = stack.enter_context(_progress())
        report = _make(model, to, (scheme.value, group_size, calibration_samples, clip), heads, progress)
    _print(report)
    typer.echo(f"wrote {to}")


def _make(
    model: Path, to: Path, wanted: tuple[str, int, int, bool], heads: int, progress: Callable[[str], None]
) -> Report:
    """Write the folder. Raises Failure if the model cannot be quantised."""
    import torch  # noqa: PLC0415

    from convoy_workloads.engines.tilefuse.generation import make  # noqa: PLC0415
    from convoy_workloads.engines.tilefuse.quantise import Request  # noqa: PLC0415
    from convoy_workloads.serving.protocol import ModelError  # noqa: PLC0415

    try:
        with write_atomically(to, folder=True) as partial:
            return make(model, partial, Request(*wanted, torch.bfloat16), progress, heads)
    except ModelError as error:
        raise Failure(str(error)) from error


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the current work on stderr. Without a terminal, each kind of work is one line."""
    console = Console(stderr=True)
    if sys.stderr.isatty():
        with console.status("starting") as status:
            yield status.update
        return
    shown = ""

    def line(text: str) -> None:
        nonlocal shown
        kind = text.partition(" of ")[0] if text.startswith("searching") else text.partition(" blocks")[0]
        if kind != shown and not text.startswith("writing"):
            typer.echo(text, err=True)
            shown = kind

    yield line


def _print(report: Report) -> None:
    table = new_table()
    for head in ("", "BEFORE", "AFTER", "CHANGE"):
        table.add_column(head)
    ratio = report.bytes_before / report.bytes_after
    table.add_row(
        "weights",
        format_bytes(report.bytes_before),
        format_bytes(report.bytes_after),
        f"{ratio:.1f} times smaller",
    )
    table.add_row(
        "held-out loss", f"{report.loss_before:.4f}", f"{report.loss_after:.4f}", f"{report.loss_change:+.2%}"
    )
    print_table(table)
    if not report.matrices:
        return
    errors = new_table()
    for head in ("MATRIX", "ERROR TO NEAREST", "ERROR", "ALPHA"):
        errors.add_column(head)
    for one in report.matrices:
        errors.add_row(one.key, f"{one.before:.2e}", f"{one.after:.2e}", f"{one.alpha:.2f}")
    print_table(errors)
