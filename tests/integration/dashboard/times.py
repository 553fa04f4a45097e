"""Times relative to now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOW = datetime.now(UTC).replace(microsecond=0)


def at(**ago: float) -> str:
    """Return a time in the past."""
    return f"{NOW - timedelta(**ago):%Y-%m-%dT%H:%M:%SZ}"
