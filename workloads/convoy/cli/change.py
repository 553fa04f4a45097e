"""Commands that steer a job."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from convoy.cli.cluster import Cluster, Context, Namespace

Name = Annotated[str, typer.Argument(help="Name of the TrainingJob.")]


def suspend(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Save the job's state and give its pods back; `resume` continues from there."""
    Cluster.connect(namespace, context).patch(name, {"spec": {"suspend": True}})
    typer.echo(f"trainingjob/{name} will save its state and give its pods back")


def resume(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Run a suspended job on from its last checkpoint."""
    Cluster.connect(namespace, context).patch(name, {"spec": {"suspend": False}})
    typer.echo(f"trainingjob/{name} runs on")


def restart(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Form the job's process group anew, in the same pods, from its last checkpoint."""
    restart_id = secrets.token_hex(4)
    Cluster.connect(namespace, context).patch(name, {"spec": {"recovery": {"restartId": restart_id}}})
    typer.echo(f"trainingjob/{name} restarts (restartId {restart_id})")


def delete(
    name: Name,
    namespace: Namespace = None,
    context: Context = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a job and its pods. Checkpoints on its volume stay."""
    if not yes:
        typer.confirm(f"Delete trainingjob/{name} and its pods?", abort=True)
    Cluster.connect(namespace, context).delete(name)
    typer.echo(f"trainingjob/{name} deleted")
