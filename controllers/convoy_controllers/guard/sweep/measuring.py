"""Tests of two nodes: the participants, the result, and the scale on which results are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """The direction in which a metric improves."""

    HIGHER = "higher"
    """Bandwidth."""
    LOWER = "lower"
    """Latency or duration."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the sweep. `node` is the name of its hardware."""

    node: str
    rack: str = ""
    """Nodes of one rack share a switch; empty if unknown."""


Pair = tuple[str, str]
"""Two nodes, sorted by name."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of the test of one pair."""

    pair: Pair
    value: float | None
    """Value in the metric's unit; None if the test gave none."""


def pair(one: str, other: str) -> Pair:
    """Return the two names, sorted."""
    return (one, other) if one < other else (other, one)


def cost(value: float | None, better: Better) -> float | None:
    """Return the logarithm of the value, with the sign chosen so that slower is larger; None for an invalid
    value.
    """
    if value is None or not math.isfinite(value) or value <= 0:
        return None
    return -math.log(value) if better is Better.HIGHER else math.log(value)


def slower(log_cost: float) -> float:
    """Return the share by which something with this extra cost is slower."""
    return math.expm1(log_cost)
