"""Explains the state of a ServingJob for the command why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from convoy.cli.messages import ShownMessages, advice_lines, indented
from convoy.client.rollout import use_of
from convoy_crds.serving_summaries import is_unwanted
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_status import GroupRecord
from convoy_crds.summaries import NOT_RECONCILED, age

MAX_REPLICAS = 8
"""Maximum number of faulty replicas to show. The output gives the number of further ones."""


def explain(job: ServingJob, now: datetime, shown: ShownMessages) -> list[str]:
    """Return the lines about the job itself. Lines about pods and Events are not included."""
    status = job.status
    new = not status.observed_generation
    state = "is new: not reconciled yet" if new else f"has {status.ready} replicas ready: {status.reason}"
    lines = [f"{job.metadata.name} {state}"]
    lines += indented(shown.add(NOT_RECONCILED if new else status.message), 2)
    bad = False
    for condition in status.conditions:
        bad |= (wrong := is_unwanted(job, condition))
        since = age(condition.last_transition_time, now)
        mark = "!" if wrong else " "
        lines.append(f"{mark} {condition.type}={condition.status} for {since}: {condition.reason}")
        lines += indented(shown.add(condition.message), 4)
    if bad:
        lines.append("  (! marks an unwanted condition)")
    return [
        *lines,
        *_replicas(job, now),
        *_decisions(job, now),
        *_model(job, now),
        *_states(job, now),
        *_revisions(job),
        *_traffic(job),
        *advice_lines(job.status.advice),
    ]


def _replicas(job: ServingJob, now: datetime) -> Iterator[str]:
    """Yield a line for each replica with a fault, the failed ones first."""
    faulty = [one for one in job.status.internal.groups if one.error]
    faulty.sort(key=lambda one: one.failed is None)
    for one in faulty[:MAX_REPLICAS]:
        yield f"Replica {one.role}-{one.number} {_fault(one, now)}: {one.reason}: {one.error}"
    if (more := len(faulty) - MAX_REPLICAS) > 0:
        yield f"{more} more replicas have a fault"


def _fault(one: GroupRecord, now: datetime) -> str:
    if one.failed:
        return f"failed {age(one.failed, now)} ago"
    count = len(one.times)
    return f"had {count} counted fault{'' if count == 1 else 's'}"


def _decisions(job: ServingJob, now: datetime) -> Iterator[str]:
    """Yield a line for each recorded change of a number of replicas, the newest first."""
    for scaled in job.status.scaling:
        for one in scaled.decisions:
            change = f"{one.from_replicas} to {one.to_replicas} replicas"
            yield f"Role {scaled.role}: {change} {age(one.time, now)} ago: {one.reason}: {one.message}"


def _model(job: ServingJob, now: datetime) -> Iterator[str]:
    if model := job.status.model:
        loss = "" if model.loss is None else f", loss {model.loss:.4f}"
        since = f", chosen {age(model.since, now)} ago" if model.since else ""
        store = f" in CheckpointStore {model.store}" if model.store else ""
        yield f"Model: step {model.step} of TrainingJob {model.job or model.uid}{store}{loss}{since}"


def _states(job: ServingJob, now: datetime) -> Iterator[str]:
    if (found := job.status.checkpoint) is not None and found.oldest is not None:
        oldest = f"the oldest saved {age(found.oldest, now)} ago"
        yield f"Saved states: {found.replicas} replicas, {found.copied} with all copies, {oldest}"


def _revisions(job: ServingJob) -> Iterator[str]:
    texts = [f"{one.name} ({use_of(job, one.name)})" for one in job.status.revisions]
    if texts:
        yield f"Revisions: {', '.join(text.removesuffix(' (-)') for text in texts)}"


def _traffic(job: ServingJob) -> Iterator[str]:
    if (found := job.status.traffic) is None:
        return
    figures = (
        ("p95", found.p95_ms, " ms"),
        ("first token p95", found.ttft_ms, " ms"),
        ("requests/s", found.requests_per_second, ""),
        ("waiting", found.queue, ""),
        ("in flight", found.in_flight, ""),
    )
    yield "Traffic: " + ", ".join(
        f"{name} {value:g}{unit}" for name, value, unit in figures if value is not None
    )
