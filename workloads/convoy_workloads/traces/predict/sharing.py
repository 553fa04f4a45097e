"""Behaviour of communications that use a link at the same time."""

from __future__ import annotations

from enum import StrEnum


class Sharing(StrEnum):
    """Behaviour of communications that use a link at the same time."""

    FAIR = "fair"
    """Each gets an equal part of the bandwidth, as flows of TCP do."""
    FIFO = "fifo"
    """One after the other, in the order of arrival."""
    NONE = "none"
    """Each has the whole bandwidth."""
