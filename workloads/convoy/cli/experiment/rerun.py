"""The command rerun, which runs the plan of an experiment again."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, Namespace, connect
from convoy.cli.experiment.stop import ExperimentName


def rerun(
    name: ExperimentName,
    other: Annotated[str, typer.Option("--as", metavar="OTHER", help="Name of the new Experiment.")],
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Create an experiment with the same plan under another name.

    The name and the images of the Engines are parts of the plan's hash, so the new experiment has another
    hash. The seeds, blocks and predictions are the same. The report's file rerun.yaml runs a plan whose
    experiment was deleted.
    """
    client = connect(namespace, context)
    client.experiments.rerun(name, other)
    typer.echo(f"experiment/{other} runs the plan of experiment/{name} again")
