"""Gauges that are set when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from convoy_controllers.trainingjob import attention
from convoy_crds.trainingjob_status import Phase
from convoy_operator.metrics import Metrics


def show_jobs(metrics: Metrics, statuses: Iterable[Mapping[str, Any]]) -> None:
    """Counts TrainingJobs by phase, those without one as Pending, and by what they wait for a person for."""
    phases: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for status in statuses:
        phases[status.get("phase") or Phase.PENDING] += 1
        waiting.update(attention.needed(status))
    for phase in Phase:
        metrics.jobs.labels(phase).set(phases[phase])
    for reason in attention.REASONS:
        metrics.jobs_waiting.labels(reason).set(waiting[reason])
