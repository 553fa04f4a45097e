"""Commands that steer a job."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated

import typer

from convoy.cli.cluster import Cluster, Context, Failure, Name, Namespace
from convoy_crds.trainingjob import TERMINAL, TrainingJob

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def refusal(job: TrainingJob, verb: str) -> str | None:
    """Why `verb` makes no sense for the job as it is; None when it does."""
    name, phase, held = job.metadata.name, job.status.phase, job.spec.suspend
    if phase in TERMINAL:
        return (
            f"trainingjob/{name} has ended ({phase}): there is nothing to {verb}; delete it to run it again"
        )
    if verb == "suspend" and held:
        return f"trainingjob/{name} is suspended already; `convoy resume {name}` lets it run on"
    if verb == "resume" and not held:
        return f"trainingjob/{name} is not suspended: {phase or 'no operator has looked at it yet'}"
    if verb == "restart" and held:
        return f"trainingjob/{name} is suspended: `convoy resume {name}` starts it"
    return None


def loss(job: TrainingJob) -> tuple[str, int]:
    """What a job without checkpoints loses when its ranks stop, in words and steps; empty when nothing."""
    status = job.status
    if job.spec.checkpoint.tiers.any or not status.incarnation:
        return "", 0
    step = status.progress.step if status.progress else 0
    own = "" if job.spec.engine else ", unless its program keeps its state itself"
    steps = f" and loses {step} steps" if step else ""
    none = "has no place for checkpoints (spec.checkpoint.tiers): it begins again"
    text = f"trainingjob/{job.metadata.name} {none}"
    return f"{text} at step 0{steps}{own}", step


def _agree(job: TrainingJob, yes: bool) -> None:
    """Says what would be lost, and asks whoever is there; Failure when steps would be and nobody answers."""
    words, steps = loss(job)
    if not words:
        return
    typer.echo(words, err=True)
    if yes:
        return
    if sys.stdin.isatty():
        typer.confirm("Go on?", abort=True, err=True)
    elif steps:
        raise Failure("say --yes to go on")


def _steered(name: str, verb: str, namespace: str | None, context: str | None) -> tuple[Cluster, TrainingJob]:
    cluster = Cluster.connect(namespace, context)
    job = cluster.job(name)
    if why := refusal(job, verb):
        raise Failure(why)
    return cluster, job


def suspend(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Save the job's state and give its pods back.

    `resume` runs it on from its last checkpoint; without a place for checkpoints, from step 0.
    """
    cluster, job = _steered(name, "suspend", namespace, context)
    _agree(job, yes)
    cluster.patch(name, {"spec": {"suspend": True}})
    saves = "saves its state and gives" if job.spec.checkpoint.tiers.any else "gives"
    typer.echo(f"trainingjob/{name} {saves} its pods back")


def resume(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Run a suspended job on.

    It goes on from its last checkpoint; without a place for checkpoints, from step 0.
    """
    cluster, _ = _steered(name, "resume", namespace, context)
    cluster.patch(name, {"spec": {"suspend": False}})
    typer.echo(f"trainingjob/{name} runs on")


def restart(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Form the job's process group anew, in the same pods.

    It goes on from its last checkpoint; without a place for checkpoints, from step 0.
    """
    cluster, job = _steered(name, "restart", namespace, context)
    _agree(job, yes)
    restart_id = secrets.token_hex(4)
    cluster.patch(name, {"spec": {"recovery": {"restartId": restart_id}}})
    typer.echo(f"trainingjob/{name} restarts (restartId {restart_id})")


def delete(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Delete a job and its pods. Checkpoints in its store stay."""
    if not yes:
        typer.confirm(f"Delete trainingjob/{name} and its pods?", abort=True)
    Cluster.connect(namespace, context).delete(name)
    typer.echo(f"trainingjob/{name} deleted")
