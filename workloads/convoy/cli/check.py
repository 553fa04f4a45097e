"""The commands validate and run, which read manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.cluster import Context, Failure, Namespace, connect
from convoy.cli.manifest import Manifest, engines, problems
from convoy.cli.server_check import named_engines, refusals
from convoy.cli.sources import STDIN, File, Files, Source, sources
from convoy_crds.servingjob import ServingJob

Server = Annotated[
    bool,
    typer.Option(
        "--server",
        help="Let the API server check each object and each job's pods in a dry run. It creates nothing.",
    ),
]


def validate(
    files: Files, server: Server = False, namespace: Namespace = None, context: Context = None
) -> None:
    """Check manifests.

    Without --server, the command needs no cluster. It applies the rules of the API server and the operator.
    With --server, the API server also checks each object and each job's pods in a dry run, with your
    rights. A dry run finds unknown pod fields, exceeded quotas and violated policies.
    """
    read = sources(*files)
    everything = [manifest for source in read for manifest in source.manifests]
    if server:
        everything += named_engines(connect(namespace, context), everything)
    bad = False
    for source in read:
        found = _problems(source, everything)
        if server and not found:
            found = _refusals(source, everything, namespace, context)
        for problem in found:
            typer.echo(f"{source.name}: {problem}", err=True)
        if found:
            bad = True
        else:
            count = len(source.manifests)
            typer.echo(f"{source.name}: {count} object{'s' if count != 1 else ''} valid")
    raise typer.Exit(1 if bad else 0)


def _refusals(
    source: Source, everything: list[Manifest], namespace: str | None, context: str | None
) -> list[str]:
    """Return the errors that the API server finds in the objects of one file. Each object is checked in its
    own namespace.
    """
    found: list[str] = []
    for manifest in source.manifests:
        own = (manifest.body.get("metadata") or {}).get("namespace")
        found += refusals(connect(own or namespace, context), manifest, everything)
    return found


def _problems(source: Source, everything: list[Manifest]) -> list[str]:
    if source.error:
        return [source.error]
    return [problem for manifest in source.manifests for problem in problems(manifest, everything)]


def run(
    file: File,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for checkpoints. If it has checkpoints, the job continues from them. "
            "Only one run at a time may use the folder. Only for a TrainingJob.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Local copy of the model that spec.model names. Only for a ServingJob."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the token that requests need. Only for a ServingJob with auth Token.",
        ),
    ] = None,
) -> None:
    """Run a TrainingJob or a ServingJob as local processes, without a cluster.

    A ServingJob is served on 127.0.0.1 until Ctrl-C. Relative paths in the job's command start at the
    manifest's folder.
    """
    # Import this here, because only `convoy run` needs the extras `workloads` and `serving`.
    from convoy_workloads.local.errors import LocalError  # noqa: PLC0415

    (source,) = sources(file)
    manifests = list(source.manifests)
    if found := _problems(source, manifests):
        raise Failure(f"{source.name}: {'; '.join(found)}")
    chosen = [manifest for manifest in manifests if manifest.job is not None or manifest.serving is not None]
    if len(chosen) != 1:
        raise Failure(f"{source.name} has {len(chosen)} jobs: `convoy run` needs exactly one")
    folder = Path.cwd() if file == STDIN else file.resolve().parent
    try:
        if chosen[0].serving is not None:
            code = _serve(chosen[0].serving, manifests, folder, (checkpoints, model, token_file))
        else:
            code = _train(chosen[0], manifests, folder, (checkpoints, model, token_file))
    except LocalError as error:
        raise Failure(str(error)) from error
    raise typer.Exit(code)


_Options = tuple[Path | None, Path | None, Path | None]
"""The options checkpoints, model and token-file."""


def _train(chosen: Manifest, manifests: list[Manifest], folder: Path, options: _Options) -> int:
    from convoy_workloads.local.run import run_local  # noqa: PLC0415

    checkpoints, *serving = options
    if any(serving) or chosen.job is None:
        raise Failure("--model and --token-file are only for a ServingJob")
    engine = chosen.engine_of(manifests)
    return run_local(chosen.job, engine, checkpoint_dir=checkpoints, folder=folder).exit_code


def _serve(job: ServingJob, manifests: list[Manifest], folder: Path, options: _Options) -> int:
    from convoy_workloads.local.serve import serve_local  # noqa: PLC0415
    from convoy_workloads.local.serving_environment import LocalFiles  # noqa: PLC0415

    checkpoints, model, token = options
    if checkpoints is not None:
        raise Failure("--checkpoints is only for a TrainingJob")
    return serve_local(job, engines(manifests), LocalFiles(model, token), folder=folder)
