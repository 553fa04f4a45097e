"""The commands suspend, resume, restart and delete."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy.cli.cluster import Context, Failure, Name, Namespace, connect
from convoy.client import Client
from convoy.client.job_actions import refusal
from convoy_crds.summaries import saves
from convoy_crds.trainingjob import TrainingJob

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def restart_loss(job: TrainingJob) -> tuple[str, int]:
    """Return what a job without checkpoints would lose if its ranks were stopped: a sentence for the user,
    and the number of training steps. Return ("", 0) if the job would lose nothing.
    """
    status = job.status
    if saves(job) or not status.incarnation:
        return "", 0
    step = status.progress.step if status.progress else 0
    own = "" if job.spec.engine else ", unless its program saves its own state"
    steps = f" and loses {step} steps" if step else ""
    none = "saves no checkpoints: it starts again"
    text = f"trainingjob/{job.metadata.name} {none}"
    return f"{text} at step 0{steps}{own}", step


def _confirm_loss(job: TrainingJob, yes: bool) -> None:
    """Print what the job would lose, and ask for confirmation unless `yes` is True. If steps would be lost
    and stdin is not a terminal, raise Failure.
    """
    words, steps = restart_loss(job)
    if not words:
        return
    typer.echo(words, err=True)
    if yes:
        return
    if sys.stdin.isatty():
        typer.confirm("Continue?", abort=True, err=True)
    elif steps:
        raise Failure("stdin is not a terminal, so Convoy cannot ask: add --yes to continue")


def _permitted_job(
    name: str, verb: str, namespace: str | None, context: str | None
) -> tuple[Client, TrainingJob]:
    """Return a client, and the job `name` that it has read. Raises Failure if the job's state does not
    permit the command `verb`.
    """
    client = connect(namespace, context)
    job = client.training_jobs.get(name)
    if why := refusal(job, verb):
        raise Failure(why)
    return client, job


def suspend(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Save a job's state and delete its pods.

    `convoy resume` continues the job from its last checkpoint, or from step 0 if the job saves no
    checkpoints.
    """
    client, job = _permitted_job(name, "suspend", namespace, context)
    _confirm_loss(job, yes)
    client.training_jobs.suspend(name)
    done = "saves its state and deletes" if saves(job) else "deletes"
    typer.echo(f"trainingjob/{name} {done} its pods")


def resume(name: Name, namespace: Namespace = None, context: Context = None) -> None:
    """Continue a suspended job.

    The job continues from its last checkpoint, or from step 0 if it saves no checkpoints.
    """
    connect(namespace, context).training_jobs.resume(name)
    typer.echo(f"trainingjob/{name} resumes")


def restart(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Restart all ranks of a job in the same pods.

    The job continues from its last checkpoint, or from step 0 if it saves no checkpoints.
    """
    client, job = _permitted_job(name, "restart", namespace, context)
    _confirm_loss(job, yes)
    restarted = client.training_jobs.restart(name)
    typer.echo(f"trainingjob/{name} restarts (restartId {restarted.spec.recovery.restart_id})")


def delete(name: Name, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Delete a job and its pods. Its checkpoints in a store remain."""
    if not yes:
        typer.confirm(f"Delete trainingjob/{name} and its pods?", abort=True)
    connect(namespace, context).training_jobs.delete(name)
    typer.echo(f"trainingjob/{name} deleted")
