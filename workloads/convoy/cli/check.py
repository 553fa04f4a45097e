"""Commands that need no cluster: `validate` and `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.cluster import Failure
from convoy.cli.manifest import Manifest, problems, read

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
    workdir: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; a restart continues from it.")
    ] = None,
) -> None:
    """Run a TrainingJob's manifest as local processes, with no cluster."""
    from convoy_workloads.local.run import run_local  # noqa: PLC0415 - needs the workloads extra

    manifests = read(file)
    if found := [problem for manifest in manifests for problem in problems(manifest, manifests)]:
        raise Failure("; ".join(found))
    jobs = [manifest for manifest in manifests if manifest.job is not None]
    if len(jobs) != 1:
        raise Failure(f"{file} holds {len(jobs)} TrainingJobs; run takes exactly one")
    raise typer.Exit(_run(jobs[0], manifests, workdir, run_local))


def _run(chosen: Manifest, manifests: list[Manifest], workdir: Path | None, run_local: object) -> int:
    job = chosen.job
    assert job is not None  # noqa: S101 - narrowed by the caller
    engine = chosen.engine_of(manifests)
    return int(run_local(job, engine, workdir=workdir))  # type: ignore[operator]
