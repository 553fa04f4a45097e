"""Decides which metrics of a job's program the status keeps. Pure.

An Engine declares the metrics of its program, and the status keeps only these. A job without an Engine
declares none: the status then keeps the first names that ranks report, up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import MetricView, RankView
from convoy_crds.metric_names import MAX_OWN_METRICS
from convoy_crds.trainingjob_status import Metric

DIGITS = 9
"""Number of significant digits of a value in the status."""


def reported(ranks: Iterable[RankView]) -> dict[str, MetricView]:
    """Return the metrics by name. Each comes from the first of `ranks` that reports it."""
    found: dict[str, MetricView] = {}
    for rank in ranks:
        for one in rank.metrics:
            found.setdefault(one.name, one)
    return found


def declared(observed: Observed) -> Sequence[str] | None:
    """Return the metric names that the job may report; None for a job without an Engine.

    If the job's Engine does not exist, return the names in the job's status.
    """
    if observed.job.spec.engine is None:
        return None
    if observed.engine is not None:
        return [one.name for one in observed.engine.spec.metrics]
    progress = observed.job.status.progress
    return [one.name for one in progress.metrics] if progress else []


def merge(
    found: Mapping[str, MetricView], stored: Sequence[Metric], allowed: Sequence[str] | None
) -> list[Metric]:
    """Return the metrics for the status. A reported value replaces the stored value.

    `found` has the metrics that ranks of this incarnation report. `allowed` is the result of `declared`.
    """
    before = {one.name: one for one in stored}
    names = _own(list(found), list(before)) if allowed is None else allowed
    return [
        _rounded(found[name]) if name in found else before[name]
        for name in names
        if name in found or name in before
    ]


def _own(found: Sequence[str], stored: Sequence[str]) -> list[str]:
    """Return the names that a job without an Engine keeps, up to the limit.

    Stored names that are still reported come first, then newly reported names. Stored names that this
    incarnation does not report come last, so they are dropped first.
    """
    order = [
        *(name for name in stored if name in found),
        *(name for name in found if name not in stored),
        *(name for name in stored if name not in found),
    ]
    return order[:MAX_OWN_METRICS]


def _rounded(one: MetricView) -> Metric:
    value = None if one.value is None else float(f"{one.value:.{DIGITS}g}")
    return Metric(name=one.name, value=value, step=one.step)
