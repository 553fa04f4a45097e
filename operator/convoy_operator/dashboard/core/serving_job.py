"""The content of a ServingJob's page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from convoy_controllers.cached import Pod
from convoy_controllers.servingjob.groups import Key, group_of, slot_of
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.serving_summaries import is_unwanted
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_status import GroupRecord, Traffic
from convoy_crds.terms import LABEL_REVISION
from convoy_operator.dashboard.core import conditions
from convoy_operator.dashboard.core.formatting import ago, counted, figure, job_link, node_link
from convoy_operator.dashboard.core.job import Fact, engine_fact, pod_state
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone
from convoy_operator.dashboard.core.serving_jobs import milliseconds

CONDITIONS = (
    Column("Condition"),
    Column("Status", badge=True),
    Column("Since", number=True),
    Column("Reason and what to do", wide=True),
)
REPLICAS = (
    Column("Replica"),
    Column("State", badge=True),
    Column("Pods ready", number=True),
    Column("Revision"),
    Column("Node", link=True),
    Column("Incarnation", number=True),
    Column("Restarts", number=True),
    Column("Why", wide=True),
)
PODS = (
    Column("Pod"),
    Column("Phase", badge=True),
    Column("Ready", badge=True),
    Column("Node", link=True),
    Column("Rack"),
    Column("State", wide=True),
)
REVISIONS = (
    Column("Revision"),
    Column("Number", number=True),
    Column("Use", badge=True),
    Column("Replicas", number=True),
)
SCALING = (
    Column("Role"),
    Column("When", number=True),
    Column("Replicas", number=True),
    Column("Why", wide=True),
)
MODEL = (
    Column("Trained by", link=True),
    Column("Step", number=True),
    Column("Incarnation", number=True),
    Column("Loss", number=True),
    Column("CheckpointStore"),
    Column("Chosen", number=True),
)


def facts(job: ServingJob, now: datetime) -> list[Fact]:
    """Return the values at the top of the page."""
    status, slo = job.status, job.spec.slo
    traffic = status.traffic or Traffic()
    return [
        Fact("Ready", status.ready or "-"),
        Fact("Updated", f"{status.updated_ready_replicas}/{status.replicas} of role {job.spec.scaled}"),
        *_scaling(job),
        Fact("Revision", status.update_revision or "-"),
        _latency("P95", traffic.p95_ms, slo.p95_ms if slo else None),
        _latency("First token P95", traffic.ttft_ms, slo.ttft_ms if slo else None),
        Fact("Requests/s", figure(traffic.requests_per_second)),
        _rate("Errors/s", traffic.errors_per_second),
        _rate("Refused/s", traffic.refused_per_second),
        Fact("Tokens/s", figure(traffic.tokens_per_second)),
        Fact("Waiting", f"{traffic.queue:,}" if traffic.queue is not None else "-"),
        Fact("In flight", f"{traffic.in_flight:,}" if traffic.in_flight is not None else "-"),
        Fact("Created", ago(job.metadata.creation_timestamp, now)),
        *(fact for role in job.spec.roles for fact in engine_fact(role.engine)),
    ]


def _scaling(job: ServingJob) -> Iterator[Fact]:
    """Yield the present and desired replicas, with their limits, of each role that Convoy scales."""
    known = {one.name: one for one in job.status.roles}
    for role in job.spec.roles:
        if role.scaling is not None and role.scaling.decides:
            there = known[role.name].replicas if role.name in known else 0
            limits = f"limits {role.scaling.min_replicas} and {role.scaling.max_replicas}"
            text = f"{counted(there, 'replica')}, {job.desired(role.name)} desired ({limits})"
            yield Fact(f"Scaling of {role.name}", text)


def scaling_rows(job: ServingJob, now: datetime) -> list[Row]:
    """Return the autoscaler's recorded decisions as table rows, the newest first."""
    found = [(one, scaled.role) for scaled in job.status.scaling for one in scaled.decisions]
    found.sort(key=lambda pair: pair[0].time, reverse=True)
    return [
        Row(
            f"{role}-{one.time.timestamp():.0f}",
            (
                Cell(role),
                Cell(ago(one.time, now), order=-one.time.timestamp()),
                Cell(f"{one.from_replicas} to {one.to_replicas}", order=float(one.to_replicas)),
                Cell(f"{one.reason}: {one.message}"),
            ),
        )
        for one, role in found
    ]


def _rate(label: str, value: float | None) -> Fact:
    return Fact(label, figure(value), Tone.WARN if value else Tone.PLAIN)


def _latency(label: str, value: float | None, limit: float | None) -> Fact:
    text = milliseconds(value)
    if limit is None:
        return Fact(label, text)
    missed = value is not None and value > limit
    return Fact(label, f"{text} (objective {milliseconds(limit)})", Tone.WARN if missed else Tone.PLAIN)


def condition_rows(job: ServingJob, now: datetime) -> list[Row]:
    """Return the job's conditions as table rows. A status that shows a problem is marked."""
    return conditions.rows(
        job.status.conditions, now, lambda one: conditions.marked(one, is_unwanted(job, one))
    )


def by_group(pods: Iterable[Pod]) -> dict[Key, list[Pod]]:
    """Return the pods of each replica, in the order of their slots."""
    found: dict[Key, list[Pod]] = {}
    for pod in pods:
        if (key := group_of(pod.view)) is not None:
            found.setdefault(key, []).append(pod)
    for several in found.values():
        several.sort(key=lambda pod: slot_of(pod.view))
    return found


def replica_rows(job: ServingJob, pods: Iterable[Pod], now: datetime) -> list[Row]:
    """Return the job's replicas as table rows. A replica without a record is on its way out."""
    records = {(one.role, one.number): one for one in job.status.internal.groups}
    own = by_group(pods)
    return [_replica(job, key, records.get(key), own.get(key, []), now) for key in sorted({*records, *own})]


def _replica(job: ServingJob, key: Key, record: GroupRecord | None, pods: list[Pod], now: datetime) -> Row:
    name = f"{key[0]}-{key[1]}"
    label, tone = _state(record, pods)
    ready = sum(pod.view.ready for pod in pods)
    node = pods[0].view.node if pods else None
    revision = record.revision if record else pods[0].view.labels.get(LABEL_REVISION, "")
    restarts = len(record.times) if record else 0
    limit = job.spec.recovery.max_restarts
    return Row(
        name,
        (
            Cell(name),
            Cell(label, tone),
            Cell(f"{ready}/{len(pods)}", order=float(ready)),
            Cell(revision or "-"),
            Cell(node or "not scheduled", href=node_link(node) if node else ""),
            Cell(str(record.incarnation) if record else "-"),
            Cell(
                f"{restarts} of {limit} in the window" if restarts else "0",
                Tone.WARN if restarts else Tone.PLAIN,
                order=float(restarts),
            ),
            Cell(_why(record, pods, now)),
        ),
        label,
    )


def _state(record: GroupRecord | None, pods: list[Pod]) -> tuple[str, Tone]:
    if record is None or (pods and all(pod.view.deleting for pod in pods)):
        return "Draining", Tone.QUIET
    if record.failed:
        return "Failed", Tone.BAD
    if pods and record.membership and all(pod.view.ready for pod in pods):
        return "Ready", Tone.GOOD
    return ("Restarting", Tone.WARN) if record.error else ("Starting", Tone.BUSY)


def _why(record: GroupRecord | None, pods: list[Pod], now: datetime) -> str:
    if record is None:
        return "finishes its requests in flight"
    if record.error:
        since = f" (failed {ago(record.failed, now)})" if record.failed else ""
        return f"{record.reason}: {record.error}{since}"
    problems = (text for text, tone in map(pod_state, pods) if tone in (Tone.WARN, Tone.BAD))
    return next(problems, "-")


def pod_rows(pods: Iterable[Pod], healths: Mapping[str, NodeHealth]) -> list[Row]:
    """Return the job's pods as table rows."""
    found = []
    for pod in sorted(pods, key=lambda pod: (pod.name, pod.uid)):
        node = pod.view.node or ""
        rack = healths[node].status.node_ref.rack if node in healths else ""
        text, tone = pod_state(pod)
        phase = {"Running": Tone.GOOD, "Failed": Tone.BAD, "Pending": Tone.BUSY}.get(pod.view.phase)
        cells = (
            Cell(pod.name),
            Cell(pod.view.phase, phase or Tone.PLAIN),
            Cell("yes", Tone.GOOD) if pod.view.ready else Cell("no", Tone.WARN),
            Cell(node or "not scheduled", href=node_link(node) if node else ""),
            Cell(rack or "-"),
            Cell(text, tone),
        )
        found.append(Row(pod.uid, cells))
    return found


def revision_rows(job: ServingJob) -> list[Row]:
    """Return the stored revisions as table rows, the newest first."""
    status, pinned = job.status, job.spec.rollout.revision
    running: dict[str, int] = {}
    for record in status.internal.groups:
        running[record.revision] = running.get(record.revision, 0) + 1
    found = []
    for one in status.revisions:
        uses = [
            name
            for name, holds in (
                ("target", one.name == status.update_revision),
                ("ran in all replicas", one.name == status.current_revision),
                ("pinned by spec.rollout.revision", one.name == pinned),
            )
            if holds
        ]
        count = running.get(one.name, 0)
        cells = (
            Cell(one.name),
            Cell(str(one.number), order=float(one.number)),
            Cell(", ".join(uses) or "-", Tone.GOOD if one.name == status.update_revision else Tone.PLAIN),
            Cell(str(count), order=float(count)),
        )
        found.append(Row(one.name, cells))
    return found


def model_rows(job: ServingJob, now: datetime) -> list[Row]:
    """Return the origin of the model as a table row; no row if the job loads no checkpoint."""
    model = job.status.model
    if model is None:
        return []
    namespace = job.metadata.namespace or ""
    trained = Cell(model.job, href=job_link(namespace, model.job)) if model.job else Cell(f"uid {model.uid}")
    cells = (
        trained,
        Cell(f"{model.step:,}", order=float(model.step)),
        Cell(str(model.incarnation)),
        Cell(figure(model.loss)),
        Cell(model.store or "-"),
        Cell(ago(model.since, now)),
    )
    return [Row(model.uid, cells)]


def model_note(job: ServingJob) -> str:
    """Describe where the replicas get their model from."""
    source = job.spec.model
    if source is None:
        return "The engine or the image brings the model."
    if source.volume is not None:
        return f"The model is in PersistentVolumeClaim {source.volume.claim_name}."
    if source.checkpoint is not None and source.checkpoint.follow:
        return "The job follows the newest checkpoint of this store (spec.model.checkpoint.follow)."
    return ""
