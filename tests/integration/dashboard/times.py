"""Times relative to the present."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOW = datetime.now(UTC).replace(microsecond=0)


def at(**ago: float) -> str:
    """Return the time that was this long ago."""
    return f"{NOW - timedelta(**ago):%Y-%m-%dT%H:%M:%SZ}"
