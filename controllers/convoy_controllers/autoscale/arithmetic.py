"""Integer and float arithmetic as Go programs on amd64 compute it: integers wrap around, and a float that no
integer can represent becomes the smallest integer.
"""

from __future__ import annotations

import math

MIN_INT32, MAX_INT32 = -(2**31), 2**31 - 1
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


def wrap32(value: int) -> int:
    """Return the low 32 bits of an integer, as a signed integer."""
    if MIN_INT32 <= value <= MAX_INT32:
        return value
    return (value - MIN_INT32) % 2**32 + MIN_INT32


def wrap64(value: int) -> int:
    """Return the low 64 bits of an integer, as a signed integer."""
    if MIN_INT64 <= value <= MAX_INT64:
        return value
    return (value - MIN_INT64) % 2**64 + MIN_INT64


def quotient(dividend: int, divisor: int) -> int:
    """Return the quotient rounded towards zero. Python's `//` rounds down."""
    rounded = abs(dividend) // abs(divisor)
    return rounded if (dividend < 0) == (divisor < 0) else -rounded


def ratio(dividend: float, divisor: float) -> float:
    """Return the quotient of two floats. A division by zero, which has no sign, gives an infinity or NaN."""
    if divisor:
        return dividend / divisor
    if dividend == 0 or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend)


def ceil32(value: float) -> int:
    """Return the value rounded up, as a 32-bit integer."""
    return _integer(math.ceil(value), MIN_INT32, MAX_INT32) if math.isfinite(value) else MIN_INT32


def ceil64(value: float) -> int:
    """Return the value rounded up, as a 64-bit integer."""
    return _integer(math.ceil(value), MIN_INT64, MAX_INT64) if math.isfinite(value) else MIN_INT64


def trunc32(value: float) -> int:
    """Return the value rounded towards zero, as a 32-bit integer."""
    return _integer(math.trunc(value), MIN_INT32, MAX_INT32) if math.isfinite(value) else MIN_INT32


def _integer(value: int, smallest: int, largest: int) -> int:
    return value if smallest <= value <= largest else smallest
