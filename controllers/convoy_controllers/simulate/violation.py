"""The error that simulations raise when Convoy breaks a guarantee."""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """Raised when Convoy breaks a guarantee. The message says which guarantee, and where."""
