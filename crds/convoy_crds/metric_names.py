"""The rule for names of metrics that training programs report."""

from __future__ import annotations

import re

METRIC_NAME = r"^[a-z][a-z0-9_]*$"
MAX_METRIC_NAME = 63
MAX_METRICS = 64
"""Maximum number of metrics that an Engine may declare. Also the maximum number of metrics that the ranks
of one pod may report together.
"""
MAX_OWN_METRICS = 16
"""Maximum number of metrics that Convoy keeps for a job without an Engine. Such a job cannot declare
metrics, so Convoy keeps the first ones that it reports.
"""

_NAME = re.compile(METRIC_NAME.strip("^$"))


def is_metric_name(name: str) -> bool:
    """Return True if an Engine may declare a metric with this name."""
    return len(name) <= MAX_METRIC_NAME and _NAME.fullmatch(name) is not None
