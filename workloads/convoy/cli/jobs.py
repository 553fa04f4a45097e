"""Finds a job or an experiment by a name from the command line. Two kinds may have objects of one name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from convoy.cli.cluster import Failure
from convoy.client import Client, Forbidden, NotFound
from convoy.client.errors import ApiError
from convoy.client.experiments import Experiments
from convoy.client.serving_jobs import ServingJobs
from convoy.client.training_jobs import TrainingJobs
from convoy_crds import experiment, servingjob, trainingjob
from convoy_crds.experiment import Experiment
from convoy_crds.kind import Kind
from convoy_crds.kinds import KINDS as ALL_KINDS
from convoy_crds.servingjob import ServingJob
from convoy_crds.trainingjob import TrainingJob

JOB_KINDS: tuple[Kind[Any], ...] = (trainingjob.KIND, servingjob.KIND)
"""The kinds of jobs, for commands that read pods."""
KINDS: tuple[Kind[Any], ...] = (*JOB_KINDS, experiment.KIND)
"""The kinds of the commands get, why, suspend, resume and delete."""
JobName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the job. If a TrainingJob and a ServingJob have the same name: trainingjob/NAME or "
        "servingjob/NAME.",
    ),
]
ObjectName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the job or experiment. If several have the same name: trainingjob/NAME, "
        "servingjob/NAME or experiment/NAME.",
    ),
]
ServingJobName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the ServingJob.")]


def find(client: Client, text: str) -> TrainingJob | ServingJob | Experiment:
    """Return the job or experiment that `text` names: NAME or KIND/NAME. Raises Failure if objects of several
    kinds have this name, NotFound if none has it.
    """
    found: TrainingJob | ServingJob | Experiment = _find(client, text, KINDS)
    return found


def find_job(client: Client, text: str) -> TrainingJob | ServingJob:
    """Return the job that `text` names: NAME or KIND/NAME. Raises Failure and NotFound as `find` does."""
    found: TrainingJob | ServingJob = _find(client, text, JOB_KINDS)
    return found


def _find(client: Client, text: str, kinds: Sequence[Kind[Any]]) -> Any:
    chosen, name = parse(text, kinds)
    found: list[Any] = []
    errors: list[ApiError] = []
    for kind in chosen:
        try:
            found.append(getattr(client, kind.attribute).get(name))
        except (NotFound, Forbidden) as error:
            errors.append(error)
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(f"there are {_listed(map(full_name, found), 'and')}: write the kind before the name")
    raise refusal(client, name, chosen, errors)


def refusal(client: Client, name: str, kinds: Iterable[Kind[Any]], errors: Sequence[ApiError]) -> ApiError:
    """Return the error to raise after each of `kinds` gave one of `errors`: the first Forbidden, else one
    that names the namespace. An error about a kind that the cluster lacks stays as it is.
    """
    forbidden = next((one for one in errors if isinstance(one, Forbidden)), None)
    if forbidden or not all(str(one).endswith("not found") for one in errors):
        return forbidden or errors[0]
    listed = _listed((kind.name for kind in kinds), "or")
    return NotFound(
        f'{listed} "{name}" not found in namespace {client.namespace}; convoy get -A lists all namespaces',
        404,
    )


def parse(text: str, kinds: Sequence[Kind[Any]]) -> tuple[tuple[Kind[Any], ...], str]:
    """Return those of `kinds`, and the name, that NAME or KIND/NAME means. KIND is a name that kubectl
    accepts.
    """
    word, slash, name = text.rpartition("/")
    if not slash:
        return tuple(kinds), name
    chosen = tuple(kind for kind in kinds if word.lower() in _names(kind))
    if chosen and name:
        return chosen, name
    forms = _listed(("NAME", *(f"{kind.name.lower()}/NAME" for kind in kinds)), "or")
    for kind in ALL_KINDS:
        if name and word.lower() in _names(kind):
            raise Failure(
                f"this command is not for {kind.name}s: write {forms}; for {text} use kubectl, such as "
                f"`kubectl describe {text}`"
            )
    raise Failure(f"{text!r} names nothing: write {forms}")


def _names(kind: Kind[Any]) -> set[str]:
    return {kind.name.lower(), kind.plural, *kind.short}


def _listed(names: Iterable[str], last: str) -> str:
    *most, end = names
    return f"{', '.join(most)} {last} {end}" if most else end


def full_name(job: TrainingJob | ServingJob | Experiment) -> str:
    """Return kind and name of an object, such as `servingjob/llm`."""
    return f"{job.kind.lower()}/{job.metadata.name}"


def collection(
    client: Client, found: TrainingJob | ServingJob | Experiment
) -> TrainingJobs | ServingJobs | Experiments:
    """Return the client's collection of the object's kind."""
    if isinstance(found, Experiment):
        return client.experiments
    return job_collection(client, found)


def job_collection(client: Client, job: TrainingJob | ServingJob) -> TrainingJobs | ServingJobs:
    """Return the client's collection of the job's kind."""
    return client.training_jobs if isinstance(job, TrainingJob) else client.serving_jobs
