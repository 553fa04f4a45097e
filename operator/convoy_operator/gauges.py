"""Gauges whose values are computed at each scrape."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import nan
from typing import Any

from convoy_controllers.servingjob import attention as serving_attention
from convoy_controllers.trainingjob import attention
from convoy_crds.guardpolicy import BreakerState, GuardPolicy
from convoy_crds.nodehealth import NodeHealth, State
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import Phase
from convoy_operator.metrics import REPLICA_STATES, SERVING_STATES, Metrics


def show_jobs(metrics: Metrics, statuses: Iterable[Mapping[str, Any]]) -> None:
    """Set the number of TrainingJobs in each phase. Also set, for each reason, the number of TrainingJobs
    that cannot continue until a person acts, the number of Independent pods in each state, and the metrics
    of placement. A job without a phase counts as Pending.
    """
    phases: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    known = list(statuses)
    metrics.independent.show(known)
    metrics.placement.show(known)
    for status in known:
        phases[status.get("phase") or Phase.PENDING] += 1
        waiting.update(attention.needed(status))
    for phase in Phase:
        metrics.jobs.labels(phase).set(phases[phase])
    for reason in attention.REASONS:
        metrics.jobs_waiting.labels(reason).set(waiting[reason])


def show_engine_metrics(
    metrics: Metrics, engines: Iterable[Mapping[str, Any]], jobs: Iterable[Mapping[str, Any]]
) -> None:
    """Set one series for each metric that an Engine declares and a running TrainingJob reports.

    The value is the mean over the Engine's running jobs. It is NaN if one of the jobs reports NaN or
    infinity. The series has no job label, and it disappears with the Engine's last running job. Only
    administrators create Engines, so the number of series stays small.
    """
    declared = {
        (engine["metadata"]["name"], one["name"])
        for engine in engines
        for one in engine["spec"].get("metrics") or ()
    }
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for job in jobs:
        status, engine = job.get("status") or {}, job["spec"].get("engine") or {}
        if status.get("phase") != Phase.RUNNING:
            continue
        for one in (status.get("progress") or {}).get("metrics") or ():
            labels = engine.get("name", ""), one["name"]
            if labels in declared:
                value = one.get("value")
                found[labels].append(nan if value is None else float(value))
    metrics.engine_metrics.clear()
    for labels, values in found.items():
        metrics.engine_metrics.labels(*labels).set(sum(value / len(values) for value in values))


def show_serving(metrics: Metrics, statuses: Iterable[Mapping[str, Any]]) -> None:
    """Set the numbers of ServingJobs and of their replicas, and the figures of all their requests."""
    states: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    replicas: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    p95 = 0.0
    known = list(statuses)
    metrics.autoscaler.show(known)
    for status in known:
        states[_serving_state(status)] += 1
        waiting.update(serving_attention.needed(status))
        for role in status.get("roles") or ():
            updated = role.get("updatedReady", 0)
            replicas.update(desired=role.get("desired", 0), ready=role.get("ready", 0), updated=updated)
        traffic = status.get("traffic") or {}
        totals.update({name: traffic.get(name) or 0 for name in ("requestsPerSecond", "queue", "inFlight")})
        p95 = max(p95, (traffic.get("p95Ms") or 0) / 1000)
    for state in SERVING_STATES:
        metrics.serving_jobs.labels(state).set(states[state])
    for state in REPLICA_STATES:
        metrics.serving_replicas.labels(state).set(replicas[state])
    for reason in serving_attention.REASONS:
        metrics.serving_waiting.labels(reason).set(waiting[reason])
    metrics.serving_requests.set(totals["requestsPerSecond"])
    metrics.serving_queue.set(totals["queue"])
    metrics.serving_in_flight.set(totals["inFlight"])
    metrics.serving_p95.set(p95)


def _serving_state(status: Mapping[str, Any]) -> str:
    holds = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
    if ConditionType.SUSPENDED in holds:
        return "Suspended"
    return "Available" if ConditionType.AVAILABLE in holds else "Unavailable"


def show_fleet(metrics: Metrics, healths: Iterable[NodeHealth], policies: Iterable[GuardPolicy]) -> None:
    """Set the number of NodeHealths in each state, and the number of breakers that are not closed."""
    states = Counter(one.status.state for one in healths)
    for state in State:
        metrics.guard_nodes.labels(state.value).set(states[state])
    metrics.guard_breakers.set(sum(one.status.breaker.state is not BreakerState.CLOSED for one in policies))
