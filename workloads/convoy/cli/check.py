"""Commands that need no cluster: `validate` and `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.cluster import Failure
from convoy.cli.manifest import problems, read

File = Annotated[Path, typer.Argument(help="A manifest: YAML, any number of documents.", exists=True)]


def validate(file: File) -> None:
    """Check a manifest as the API server and the operator would, with no cluster."""
    manifests = read(file)
    found = [problem for manifest in manifests for problem in problems(manifest, manifests)]
    for problem in found:
        typer.echo(f"{file}: {problem}", err=True)
    if found:
        raise typer.Exit(1)
    typer.echo(f"{file}: {len(manifests)} object{'s' if len(manifests) != 1 else ''} valid")


def run(
    file: File,
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; the job continues from what it finds there.")
    ] = None,
) -> None:
    """Run a TrainingJob's manifest as local processes, with no cluster."""
    # Needs the workloads extra, which no other command does.
    from convoy_workloads.local.run import LocalError, run_local  # noqa: PLC0415

    manifests = read(file)
    if found := [problem for manifest in manifests for problem in problems(manifest, manifests)]:
        raise Failure("; ".join(found))
    chosen = [manifest for manifest in manifests if manifest.job is not None]
    if len(chosen) != 1 or chosen[0].job is None:
        raise Failure(f"{file} holds {len(chosen)} TrainingJobs; run takes exactly one")
    try:
        code = run_local(chosen[0].job, chosen[0].engine_of(manifests), checkpoint_dir=checkpoints)
    except LocalError as error:
        raise Failure(str(error)) from error
    raise typer.Exit(code)
