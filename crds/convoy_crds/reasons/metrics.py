"""Findings about figures that training programs report and that Convoy does not keep."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class MetricReasons:
    """Findings about figures that training programs report and that Convoy does not keep."""

    UNDECLARED_METRICS = Reason(
        "UndeclaredMetrics",
        "Engine {engine} does not declare {count} of the metrics that the ranks report; Convoy drops them: "
        "{names}. Declare them in spec.metrics of the Engine, or do not report them",
        warning=True,
    )
    TOO_MANY_METRICS = Reason(
        "TooManyMetrics",
        "the ranks report {count} metrics, and of a job without an Engine Convoy keeps {most}; it drops: "
        "{names}. Report fewer, or declare them in spec.metrics of an Engine",
        warning=True,
    )
