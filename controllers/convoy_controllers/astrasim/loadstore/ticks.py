"""Exact time. A tick divides every duration of a run, so no time is ever rounded."""

from __future__ import annotations

import math
from fractions import Fraction

DIGITS = 6
"""Decimal places of a parameter that count."""


def exact(value: float) -> Fraction:
    """Return a parameter as a fraction, to DIGITS decimal places."""
    return Fraction(round(value * 10**DIGITS), 10**DIGITS)


def per_ns(durations: list[Fraction]) -> int:
    """Return the ticks of a nanosecond such that each duration is a whole number of ticks."""
    return math.lcm(*(one.denominator for one in durations))
