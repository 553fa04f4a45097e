"""The error of a node that cannot run."""

from __future__ import annotations

from convoy_controllers.astrasim.result import FindingKind


class NodeError(Exception):
    """Raised when a rank issues a node that cannot run."""

    def __init__(self, message: str, kind: FindingKind = FindingKind.INVALID_NODE) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
