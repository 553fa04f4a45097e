"""Finds a job by a name from the command line. Jobs of two kinds may have the same name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from convoy.cli.cluster import Failure
from convoy.client import Client, Forbidden, NotFound
from convoy.client.errors import ApiError
from convoy.client.serving_jobs import ServingJobs
from convoy.client.training_jobs import TrainingJobs
from convoy_crds import servingjob, trainingjob
from convoy_crds.kind import Kind
from convoy_crds.servingjob import ServingJob
from convoy_crds.trainingjob import TrainingJob

KINDS: tuple[Kind[Any], ...] = (trainingjob.KIND, servingjob.KIND)
"""The kinds of jobs."""
JobName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the job. If a TrainingJob and a ServingJob have the same name: trainingjob/NAME or "
        "servingjob/NAME.",
    ),
]
ServingJobName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the ServingJob.")]


def find(client: Client, text: str) -> TrainingJob | ServingJob:
    """Return the job that `text` names: NAME or KIND/NAME. Raises Failure if jobs of several kinds have this
    name, NotFound if no job has it.
    """
    kinds, name = parse(text)
    found: list[TrainingJob | ServingJob] = []
    errors: list[ApiError] = []
    for kind in kinds:
        try:
            found.append(getattr(client, kind.attribute).get(name))
        except (NotFound, Forbidden) as error:
            errors.append(error)
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(f"there are {' and '.join(map(full_name, found))}: write the kind before the name")
    raise next((one for one in errors if isinstance(one, Forbidden)), errors[0])


def parse(text: str) -> tuple[tuple[Kind[Any], ...], str]:
    """Return the kinds and the name that NAME or KIND/NAME means. KIND is a name that kubectl accepts."""
    word, slash, name = text.rpartition("/")
    if not slash:
        return KINDS, name
    chosen = tuple(kind for kind in KINDS if word.lower() in {kind.name.lower(), kind.plural, *kind.short})
    if not chosen or not name:
        raise Failure(f"{text!r} names no job: write NAME, trainingjob/NAME or servingjob/NAME")
    return chosen, name


def full_name(job: TrainingJob | ServingJob) -> str:
    """Return kind and name of a job, such as `servingjob/llm`."""
    return f"{job.kind.lower()}/{job.metadata.name}"


def collection(client: Client, job: TrainingJob | ServingJob) -> TrainingJobs | ServingJobs:
    """Return the client's collection of the job's kind."""
    return client.training_jobs if isinstance(job, TrainingJob) else client.serving_jobs
