"""Kubernetes quantities, such as `500m` or `1.5Gi`, as the autoscaler of Kubernetes reads them."""

from __future__ import annotations

import re
from fractions import Fraction

from convoy_controllers.autoscale.arithmetic import MAX_INT64

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""Exponents of 10 by suffix."""
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Exponents of 2 by suffix."""
_FORM = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,3})")


def exact(quantity: str | int) -> Fraction:
    """Return the exact value. Raise ValueError if the text is no quantity."""
    found = _FORM.fullmatch(str(quantity))
    if found is None:
        raise ValueError(f"{quantity!r} is no quantity; write a number such as 2, 0.5, 500m or 1Gi")
    number, suffix = Fraction(found[1]), found[2]
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return number * Fraction(f"1e{exponent}")


def milli_value(quantity: str | int) -> int:
    """Return the value in thousandths, rounded away from zero."""
    value = exact(quantity) * 1000
    rounded = -(-abs(value.numerator) // value.denominator)
    return min(rounded, MAX_INT64) if value >= 0 else -min(rounded, MAX_INT64)


def approximate_float(quantity: str | int) -> float:
    """Return the value as a float, with the rounding error of Kubernetes.

    Kubernetes stores a quantity as an integer and the largest exponent of 10 that is divisible by 3, and
    multiplies the two: `0.57` is 570 times 0.001, which is not 0.57.
    """
    value, exponent = exact(quantity), 0
    if not value:
        return 0.0
    while value.denominator > 1 and exponent > -9:
        value, exponent = value * 1000, exponent - 3
    while value.denominator == 1 and value.numerator % 1000 == 0:
        value, exponent = value / 1000, exponent + 3
    rounded = -(-abs(value.numerator) // value.denominator)
    return (rounded if value > 0 else -rounded) * float(f"1e{exponent}")
