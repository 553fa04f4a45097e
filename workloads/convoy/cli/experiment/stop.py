"""The command stop, which ends an experiment early."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, Namespace, connect

ExperimentName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the Experiment.")]


def stop(
    name: ExperimentName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Start no further run, and analyse the blocks that have ended.

    The experiment cannot go on afterwards. Running jobs are deleted.
    """
    client = connect(namespace, context)
    here = client.experiments.get(name)
    if not yes:
        typer.confirm(
            f"Stop experiment/{name} at {here.status.progress or 'no'} blocks for good?", abort=True
        )
    client.experiments.stop(name)
    typer.echo(f"experiment/{name} stops: its running jobs are deleted, and the ended blocks are analysed")
