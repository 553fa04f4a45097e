"""The commands suspend, resume, restart and delete, for jobs and experiments."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy.cli.cluster import Context, Failure, Namespace, connect
from convoy.cli.jobs import JobName, ObjectName, collection, find, full_name
from convoy.client.job_actions import refusal
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_status import EXPERIMENT_ENDED
from convoy_crds.servingjob import ServingJob
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


def suspend(name: ObjectName, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Save a TrainingJob's state, or drain a ServingJob, and delete the job's pods. An Experiment starts no
    more jobs.

    `convoy resume` continues a TrainingJob from its last checkpoint, or from step 0 if it saves no
    checkpoints. It starts the replicas of a ServingJob again. Jobs of an Experiment that run go on to their
    end. `convoy experiment stop` ends an Experiment for good.
    """
    client = connect(namespace, context)
    job = find(client, name)
    if isinstance(job, TrainingJob):
        if why := refusal(job, "suspend"):
            raise Failure(why)
        _confirm_loss(job, yes)
        client.training_jobs.suspend(job.metadata.name)
        done = "saves its state and deletes its pods" if saves(job) else "deletes its pods"
    elif isinstance(job, Experiment):
        client.experiments.suspend(job.metadata.name)
        done = "starts no more jobs; those that run go on to their end"
    else:
        client.serving_jobs.suspend(job.metadata.name)
        done = "finishes the requests in flight and deletes its pods"
    typer.echo(f"{full_name(job)} {done}")


def resume(name: ObjectName, namespace: Namespace = None, context: Context = None) -> None:
    """Continue a suspended job or experiment.

    A TrainingJob continues from its last checkpoint, or from step 0 if it saves no checkpoints. A ServingJob
    starts its replicas. An Experiment starts its next jobs, and no block that has ended runs again.
    `convoy rollout resume` continues a paused rollout.
    """
    client = connect(namespace, context)
    job = find(client, name)
    collection(client, job).resume(job.metadata.name)
    typer.echo(f"{full_name(job)} resumes")


def restart(name: JobName, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Restart all ranks of a TrainingJob in the same pods.

    The job continues from its last checkpoint, or from step 0 if it saves no checkpoints.
    """
    client = connect(namespace, context)
    job = find(client, name)
    if isinstance(job, Experiment):
        raise Failure(
            f"{full_name(job)}: restart is for TrainingJobs; to run the plan again under another name, run: "
            f"convoy experiment rerun {job.metadata.name} --as OTHER"
        )
    if not isinstance(job, TrainingJob):
        raise Failure(
            f"{full_name(job)}: restart is for TrainingJobs; Convoy replaces a replica whose pods you delete"
        )
    if why := refusal(job, "restart"):
        raise Failure(why)
    _confirm_loss(job, yes)
    restarted = client.training_jobs.restart(job.metadata.name)
    typer.echo(f"{full_name(job)} restarts (restartId {restarted.spec.recovery.restart_id})")


def delete(name: ObjectName, yes: Yes = False, namespace: Namespace = None, context: Context = None) -> None:
    """Delete a job and its pods, or an experiment and its jobs.

    The store keeps the checkpoints of a TrainingJob, and the plan, data and report of an Experiment. The
    blocks of an Experiment that has not ended are not analysed: for that, run `convoy experiment stop`.
    """
    client = connect(namespace, context)
    found = find(client, name)
    if not yes:
        typer.confirm(_deletion_question(found), abort=True)
    collection(client, found).delete(found.metadata.name)
    typer.echo(f"{full_name(found)} deleted")


def _deletion_question(found: TrainingJob | ServingJob | Experiment) -> str:
    if not isinstance(found, Experiment):
        return f"Delete {full_name(found)} and its pods?"
    question = f"Delete {full_name(found)} and its jobs?"
    if found.status.phase in EXPERIMENT_ENDED:
        return question
    return (
        f"{full_name(found)} has not ended: its blocks will never be analysed "
        f"(`convoy experiment stop {found.metadata.name}` analyses them). {question}"
    )
