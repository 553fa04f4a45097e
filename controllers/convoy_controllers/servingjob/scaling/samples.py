"""The autoscaler's view of a role: one pod for each replica, and the values of the metrics."""

from __future__ import annotations

from collections.abc import Sequence

from convoy_controllers.autoscale import samples, spec
from convoy_controllers.autoscale.samples import Reading, Sample
from convoy_controllers.servingjob.groups import Group, pod_name
from convoy_controllers.servingjob.loads import METRICS, Load
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.views import PodView
from convoy_crds.servingjob_scaling import ScalingMetric
from convoy_crds.terms import LABEL_ROLE, ROLE_ACTIVATOR

_PENDING = "Pending"


def observed(
    job: Observed, role: str, groups: Sequence[Group], metrics: Sequence[spec.Metric], now: float
) -> samples.Observed:
    """Return the autoscaler's view of a role with these replicas. `now` is in Unix seconds."""
    return samples.Observed(
        spec_replicas=job.desired(role),
        status_replicas=len(groups),
        pods=tuple(_pod(job, one) for one in groups),
        readings=tuple(_reading(job, role, groups, metric, now) for metric in metrics),
        worked_at=max((at for one in groups if (at := _worked_at(job, one, now))), default=0.0),
    )


def held_requests(job: Observed, role: str) -> int:
    """Return the requests that wait for replicas of a role, at activators and at replicas."""
    return sum(load.waiting for load in _waiting_loads(job, role))


def _pod(job: Observed, group: Group) -> samples.Pod:
    """Return the pod that stands for a group: slot 0. A group whose pods do not all run is pending."""
    name = pod_name(job.job.metadata.name, group.record, 0)
    first = group.pods.get(0)
    if first is None:
        return samples.Pod(name, _PENDING)
    whole = all(slot in group.pods for slot in range(group.size))
    pending = not whole or any(pod.phase == _PENDING for pod in group.pods.values())
    known = bool(first.ready_changed)
    requests = {spec.CPU: first.cpu_millicores} if first.cpu_millicores else {}
    readiness = samples.Readiness("True" if first.ready else "False", first.ready_changed)
    return samples.Pod(
        name,
        _PENDING if pending else first.phase,
        first.deleting,
        readiness if known else None,
        first.started or None,
        (samples.Container(first.container, requests),),
    )


def _reading(job: Observed, role: str, groups: Sequence[Group], metric: spec.Metric, now: float) -> Reading:
    if metric.type is spec.MetricType.EXTERNAL:
        return _total(job, role, groups)
    found: dict[str, Sample] = {}
    for group in groups:
        load = _load(job, group.pods.get(0))
        value = _value(load, metric) if load else None
        if load is not None and value is not None:
            name = pod_name(job.job.metadata.name, group.record, 0)
            found[name] = Sample(round(1000 * value), now - load.age_seconds, load.window_seconds)
    return found


def _value(load: Load, metric: spec.Metric) -> float | None:
    if metric.type is spec.MetricType.RESOURCE:
        return load.cores
    return METRICS[ScalingMetric(metric.name)](load)


def _worked_at(job: Observed, group: Group, now: float) -> float | None:
    """Return the newest known time, in Unix seconds, at which a replica had a request."""
    load = _load(job, group.pods.get(0))
    return None if load is None or load.quiet_seconds is None else now - load.quiet_seconds


def _total(job: Observed, role: str, groups: Sequence[Group]) -> Reading:
    """Return the waiting requests of the whole role. Without the report of a ready replica, the total is not
    known.
    """
    for group in groups:
        if group.ready and _load(job, group.pods.get(0)) is None:
            return samples.Unavailable(f"replica {group.name} has not reported its requests for a while")
    found = _waiting_loads(job, role)
    if not found:
        return samples.Unavailable("no pod reports its requests yet")
    return (1000 * sum(load.waiting for load in found),)


def _waiting_loads(job: Observed, role: str) -> list[Load]:
    roles = {role, ROLE_ACTIVATOR}
    pods = (pod for pod in job.own_pods if pod.labels.get(LABEL_ROLE) in roles)
    return [load for pod in pods if (load := _load(job, pod)) is not None]


def _load(job: Observed, pod: PodView | None) -> Load | None:
    return job.loads.get(pod.uid) if pod is not None else None
