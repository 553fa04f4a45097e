"""Timings of the operator's work queue: defaults of its settings and of the simulator."""

from __future__ import annotations

DEBOUNCE_SECONDS = 0.15
"""Seconds for which the operator gathers changes of an object's children before it reconciles the object.
The pods of a job change together, and no user notices 0.15 s.
"""
BACKOFF_MIN_SECONDS = 0.5
"""Seconds before the first retry of a failed reconcile."""
BACKOFF_MAX_SECONDS = 60.0
"""Maximum back-off between retries, in seconds."""
