"""Converts the request ledger's counts to metrics of a job, and back. Standard library only.

The loop reports them after each iteration, so `convoy spot requests` can show them while the job runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "requests_"
MEANINGS = {
    "planned": "requests in all",
    "open": "requests that have not ended",
    "consumed": "results that the trainer used",
    "expired": "requests whose results were too old or never came",
    "superseded": "requests that the planner dropped",
    "leased": "leases of workers",
    "resumed": "leases that went on from saved progress",
    "committed": "times that progress was saved",
    "surrendered": "leases that workers gave back",
    "timedOut": "leases that timed out",
    "revoked": "leases of lost workers",
    "exhausted": "requests that expired after too many leases without progress",
    "duplicates": "results that came again",
    "late": "results that came after the end of their request",
    "unknown": "messages about requests that are no longer known",
    "staleCommits": "saved progress that was behind",
    "staleResults": "results that were too old",
}
"""Meaning of each count of the ledger."""
ENDINGS = ("open", "consumed", "expired", "superseded")
"""The counts whose sum is `planned`."""


def metric_name(count: str) -> str:
    """Return the name of a count's metric: `requests_timed_out` for `timedOut`."""
    return PREFIX + re.sub("([A-Z])", r"_\1", count).lower()


def to_metrics(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the counts as metrics."""
    return {metric_name(name): value for name, value in counts.items()}


def from_metrics(values: Mapping[str, float | None]) -> dict[str, int]:
    """Return the counts among the metrics of a job. Without the number of planned requests there are none."""
    found = {name: values.get(metric_name(name)) for name in MEANINGS}
    if found["planned"] is None:
        return {}
    return {name: int(value) for name, value in found.items() if value is not None}
