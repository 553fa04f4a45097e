"""The error that simulations raise when Convoy breaks one of its guarantees."""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """Convoy broke a guarantee. The message says which one, and where."""
