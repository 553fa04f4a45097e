"""Explains the state of an Experiment for the command why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from convoy.cli.jobs import full_name
from convoy.cli.messages import ShownMessages, indented
from convoy.client import Client, Forbidden
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_schedule import Cell
from convoy_crds.experiment_status import BlockStatus, ControlStatus
from convoy_crds.experiment_summary import condition_title
from convoy_crds.servingjob import ServingJob
from convoy_crds.summaries import NOT_RECONCILED, WARNING_REASONS, age
from convoy_crds.terms import LABEL_EXPERIMENT
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Phase

MAX_LINES = 8
"""Maximum number of jobs, and of failed runs, to show. The output gives the number of further ones."""
Job = TrainingJob | ServingJob


def explain(experiment: Experiment, now: datetime, shown: ShownMessages) -> list[str]:
    """Return the lines about the experiment itself. Lines about its jobs and Events are not included."""
    name, status = experiment.metadata.name, experiment.status
    lines = [f"{name} is {status.phase or 'new'}: {status.reason or 'not reconciled yet'}"]
    lines += indented(shown.add(status.message if status.phase else NOT_RECONCILED), 2)
    bad = False
    for condition in status.conditions:
        bad |= (wrong := condition.reason in WARNING_REASONS)
        since = age(condition.last_transition_time, now)
        mark = "!" if wrong else " "
        lines.append(f"{mark} {condition.type}={condition.status} for {since}: {condition.reason}")
        lines += indented(shown.add(condition.message), 4)
    if bad:
        lines.append("  (! marks an unwanted condition)")
    return [
        *lines,
        *_blocks(experiment),
        *_failures(experiment, shown),
        *(f"Control {_control(one)}" for one in status.controls if not one.passed),
        *([f"Verdicts: {status.summary}"] if status.summary else []),
        *_report(experiment),
    ]


def _blocks(experiment: Experiment) -> Iterator[str]:
    status = experiment.status
    if status.progress:
        limit = f", {status.failed_blocks} failed (at most {experiment.spec.max_failed_blocks} may fail)"
        yield f"Blocks: {status.progress} have ended{limit if status.failed_blocks else ''}"


def _failures(experiment: Experiment, shown: ShownMessages) -> Iterator[str]:
    """Yield the failed runs, the newest first."""
    found = [(block, one) for block in reversed(experiment.status.blocks) for one in reversed(block.failures)]
    for block, one in found[:MAX_LINES]:
        yield f"Failed run: block {block.id} ({_title(experiment, block)}), arm {one.arm}: {one.reason}"
        yield from indented(shown.add(one.message), 2)
    if (more := len(found) - MAX_LINES) > 0:
        yield f"{more} more runs failed: convoy experiment status {experiment.metadata.name}"


def _title(experiment: Experiment, block: BlockStatus) -> str:
    return condition_title(experiment.spec, Cell(block.perturbation, block.magnitude))


def _control(one: ControlStatus) -> str:
    return f"{one.name} failed{f': {one.message}' if one.message else ''}"


def _report(experiment: Experiment) -> Iterator[str]:
    status, name = experiment.status, experiment.metadata.name
    if status.artefact is not None and status.artefact.digest:
        yield f"Report: convoy experiment report {name}"
    elif status.blocks:
        yield f"Figures of the blocks: convoy experiment status {name}"


def jobs_of(client: Client, experiment: Experiment) -> tuple[list[Job], list[str]]:
    """Return the experiment's jobs that exist, and a note about each kind of jobs that the user may not
    list.
    """
    found: list[Job] = []
    notes = []
    selector = f"{LABEL_EXPERIMENT}={experiment.metadata.name}"
    for collection in (client.training_jobs, client.serving_jobs):
        try:
            found += collection.list(label_selector=selector)
        except Forbidden as error:
            notes.append(f"  {error}")
    return [job for job in found if _owner(job) == experiment.metadata.uid], notes


def _owner(job: Job) -> str:
    """Return the uid of the object that controls a job; empty if there is none."""
    owners = job.metadata.to_dict().get("ownerReferences") or []
    return next((str(one.get("uid", "")) for one in owners if one.get("controller")), "")


def job_lines(jobs: Sequence[Job], now: datetime, shown: ShownMessages) -> Iterator[str]:
    """Yield the lines about the jobs of an experiment that have not ended or have failed. Jobs with a problem
    come first.
    """
    listed = [job for job in jobs if _phase(job) != Phase.SUCCEEDED]
    listed.sort(key=lambda job: (job.status.reason not in WARNING_REASONS, job.metadata.name))
    for job in listed[:MAX_LINES]:
        status, since = job.status, age(job.metadata.creation_timestamp, now)
        yield (
            f"  {full_name(job):<40} {_phase(job)}, created {since} ago: "
            f"{status.reason or 'not reconciled yet'}"
        )
        if status.reason in WARNING_REASONS:
            yield from indented(shown.add(status.message), 4)
    if (more := len(listed) - MAX_LINES) > 0:
        yield f"  {more} more jobs"
    if listed:
        yield f"  (`convoy why {full_name(listed[0])}` explains the first one)"


def _phase(job: Job) -> str:
    if isinstance(job, TrainingJob):
        return job.status.phase or "New"
    return f"{job.status.ready or '0/0'} replicas ready"
