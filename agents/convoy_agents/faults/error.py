"""The error of a fault that cannot be injected."""

from __future__ import annotations


class FaultError(Exception):
    """A fault cannot be injected. The message says why, and what would help."""


class TargetGone(Exception):
    """The pod, or its container, has ended. Nothing is left to undo."""
