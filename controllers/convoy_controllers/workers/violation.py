"""The reason why a job cannot run, or why it waits."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.reasons.reason import Reason


@dataclass(frozen=True, slots=True)
class Violation:
    """A reason why a job cannot run, and the full message."""

    reason: Reason
    message: str
