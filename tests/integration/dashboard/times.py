"""Times of a made-up cluster, before now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOW = datetime.now(UTC).replace(microsecond=0)


def at(**ago: float) -> str:
    """A time so long ago."""
    return f"{NOW - timedelta(**ago):%Y-%m-%dT%H:%M:%SZ}"
