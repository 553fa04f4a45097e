"""Tests of two nodes with one another: who took part, what was measured, and how it is compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """Which way a metric is good."""

    HIGHER = "higher"
    """A bandwidth."""
    LOWER = "lower"
    """A latency or a duration."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the sweep, by the id of its hardware."""

    node: str
    rack: str = ""
    """Nodes of one rack share a switch; empty when it is not known."""


Pair = tuple[str, str]
"""Two nodes, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a test of a pair gave."""

    pair: Pair
    value: float | None
    """In the metric's own unit; None when the test gave no figure."""


def pair(one: str, other: str) -> Pair:
    """The two in the order of their names."""
    return (one, other) if one < other else (other, one)


def cost(value: float | None, better: Better) -> float | None:
    """The logarithm on which slower is more, whichever way the metric is good; None for what is no figure."""
    if value is None or not math.isfinite(value) or value <= 0:
        return None
    return -math.log(value) if better is Better.HIGHER else math.log(value)


def slower(log_cost: float) -> float:
    """The share by which something is slower that costs so much more on the scale of `cost`."""
    return math.expm1(log_cost)
