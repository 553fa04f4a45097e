"""Commands that steer a job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy.cli.cluster import Context, Failure, Name, Namespace, connect
from convoy.client import Client
from convoy.client.job_actions import refusal
from convoy_crds.trainingjob import TrainingJob

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def restart_loss(job: TrainingJob) -> tuple[str, int]:
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


def _confirm_loss(job: TrainingJob, yes: bool) -> None:
    """Says what would be lost, and asks whoever is there; Failure when steps would be and nobody answers."""
    words, steps = restart_loss(job)
    if not words:
        return
    typer.echo(words, err=True)
    if yes:
        return
    if sys.stdin.isatty():
        typer.confirm("Go on?", abort=True, err=True)
    elif steps:
        raise Failure("say --yes to go on")


def _permitted_job(
    name: str, verb: str, namespace: str | None, context: str | None
) -> tuple[Client, TrainingJob]:
    """The job, once it is known that it can be steered so: before anybody is asked."""
    client = connect(namespace, context)
    job = client.training_jobs.get(name)
    if why := refusal(job, verb):
        raise Failure(why)
    return client, job


def suspend(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Save the job's state and give its pods back.

    `resume` runs it on from its last checkpoint; without a place for checkpoints, from step 0.
    """
    client, job = _permitted_job(name, "suspend", namespace, context)
    _confirm_loss(job, yes)
    client.training_jobs.suspend(name)
    saves = "saves its state and gives" if job.spec.checkpoint.tiers.any else "gives"
    typer.echo(f"trainingjob/{name} {saves} its pods back")


def resume(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Run a suspended job on.

    It goes on from its last checkpoint; without a place for checkpoints, from step 0.
    """
    connect(namespace, context).training_jobs.resume(name)
    typer.echo(f"trainingjob/{name} runs on")


def restart(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Form the job's process group anew, in the same pods.

    It goes on from its last checkpoint; without a place for checkpoints, from step 0.
    """
    client, job = _permitted_job(name, "restart", namespace, context)
    _confirm_loss(job, yes)
    restarted = client.training_jobs.restart(name)
    typer.echo(f"trainingjob/{name} restarts (restartId {restarted.spec.recovery.restart_id})")


def delete(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Delete a job and its pods. Checkpoints in its store stay."""
    if not yes:
        typer.confirm(f"Delete trainingjob/{name} and its pods?", abort=True)
    connect(namespace, context).training_jobs.delete(name)
    typer.echo(f"trainingjob/{name} deleted")
