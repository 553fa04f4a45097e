"""The record of a finished TrainingJob, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convoy.cli.cluster import Failure
from convoy_controllers.trainingjob.provenance import again, spec_digest
from convoy_crds.provenance import JobProvenance
from convoy_crds.summaries import metrics, shorten_list
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

MAX_NAMES = 8
_AGAIN = "convoy why {name} --provenance -o json | jq .again > again.json"


def recorded(job: TrainingJob) -> JobProvenance:
    """Return the record of a job. Raises Failure if it has none."""
    name, phase = job.metadata.name, job.status.phase
    if job.status.provenance is not None:
        return job.status.provenance
    if phase not in TERMINAL:
        raise Failure(f"{name} is {phase or 'new'}: Convoy records the run when the job ends")
    raise Failure(f"{name} has no record: a version of Convoy without records ended it")


def document(job: TrainingJob) -> dict[str, Any]:
    """Return the record, the facts of the run, the spec, and the manifest of a job that repeats the run."""
    found, status = recorded(job), job.status.to_dict()
    facts = ("phase", "startTime", "completionTime", "incarnation", "restarts", "offenders", "goodput")
    figures = ("result", "progress", "checkpoint")
    return {
        "complete": not found.missing,
        "specUnchanged": found.spec_digest == spec_digest(job),
        "job": {"name": job.metadata.name, "namespace": job.metadata.namespace, "uid": job.metadata.uid},
        "provenance": found.to_dict(),
        "run": {name: status[name] for name in (*facts, *figures) if name in status},
        "spec": job.spec.to_dict(),
        "again": again(job),
    }


def lines(job: TrainingJob) -> Iterator[str]:
    """Yield the lines about the record of a job."""
    found, status = recorded(job), job.status
    state = "incomplete" if found.missing else "complete"
    yield f"The record of {job.metadata.name} ({status.phase}) is {state}"
    for one in found.missing:
        yield f"! It lacks {one}"
    edited = "" if found.spec_digest == spec_digest(job) else ", but the spec has been edited since"
    yield f"Spec: generation {found.generation}, {found.spec_digest}{edited}"
    if found.engine is not None:
        yield f"Engine: {found.engine.name}, image {found.engine.image}"
    for image in found.images:
        ran = image.digest or "unknown digest"
        yield f"Image of {image.role}/{image.container}: {image.image}, ran {ran}"
    named = (("Code", found.revision), ("Data", found.dataset), ("Seed", found.seed))
    yield from (f"{what}: {value}" for what, value in named if value)
    yield f"Nodes: {shorten_list(found.nodes, MAX_NAMES)} ({found.node_count} in total)"
    if found.hardware:
        yield f"Hardware: {', '.join(found.hardware)}"
    versions = (("Convoy", found.convoy), ("Python", found.python), ("torch", found.torch))
    if known := [f"{what} {version}" for what, version in versions if version]:
        yield f"Versions: {', '.join(known)}"
    yield f"Ran from {status.start_time} to {status.completion_time}, {status.restarts.total} restarts"
    yield from _figures(job)
    yield "To repeat the run, delete this job, or choose another name, and create the manifest:"
    yield f"  {_AGAIN.format(name=job.metadata.name)}"


def _figures(job: TrainingJob) -> Iterator[str]:
    status = job.status
    if status.progress is not None:
        loss = "" if status.progress.loss is None else f", loss {status.progress.loss:g}"
        yield f"Last step: {status.progress.step}{loss}"
        if found := metrics(status.progress):
            yield f"Metrics: {shorten_list(found, MAX_NAMES)}"
    if status.result is not None:
        yield f"Result: {status.result}"
    if (point := status.saved) is not None:
        store = job.spec.checkpoint.tiers.store
        where = f"store {store}" if point.tier == "remote" and store else f"tier {point.tier}"
        yield f"Checkpoint: step {point.step} of incarnation {point.incarnation} in {where}"
