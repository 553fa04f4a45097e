"""Timings of the operator's work queue. Its settings and the simulator default to them."""

from __future__ import annotations

DEBOUNCE_SECONDS = 0.15
"""Seconds for which changes of children are gathered: a job's pods change together, no user sees 0.15 s."""
BACKOFF_MIN_SECONDS = 0.5
"""Seconds before the first retry of a failed reconcile."""
BACKOFF_MAX_SECONDS = 60.0
"""Most seconds between retries of a reconcile that fails again and again."""
