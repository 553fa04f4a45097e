"""Reasons about metrics that training programs report but Convoy drops."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class MetricReasons:
    """Reasons about metrics that training programs report but Convoy drops."""

    UNDECLARED_METRICS = Reason(
        "UndeclaredMetrics",
        "Engine {engine} does not declare {count} of the metrics that the ranks report; Convoy drops them: "
        "{names}. Declare them in spec.metrics of the Engine, or do not report them",
        warning=True,
    )
    TOO_MANY_METRICS = Reason(
        "TooManyMetrics",
        "the ranks report {count} metrics, but Convoy keeps only {most} for a job without an Engine; it "
        "drops: {names}. Report fewer, or declare them in spec.metrics of an Engine",
        warning=True,
    )
