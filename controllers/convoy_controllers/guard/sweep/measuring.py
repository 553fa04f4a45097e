"""The test of a pair of nodes: the participants, the result, and the scale on which results are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """The direction in which a metric improves."""

    HIGHER = "higher"
    """A higher value is better, as for bandwidth."""
    LOWER = "lower"
    """A lower value is better, as for latency or duration."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the sweep. `node` is the name of the node's hardware."""

    node: str
    rack: str = ""
    """Name of the rack, empty if unknown. The nodes of one rack share a switch."""


Pair = tuple[str, str]
"""Two nodes, sorted by name."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of the test of one pair."""

    pair: Pair
    value: float | None
    """Value in the metric's unit; None if the test gave no value."""


def pair(one: str, other: str) -> Pair:
    """Return the pair of two nodes, sorted by name."""
    return (one, other) if one < other else (other, one)


def cost(value: float | None, better: Better) -> float | None:
    """Return the value's logarithm, with the sign that makes a slower result larger. Return None for an
    invalid value.
    """
    if value is None or not math.isfinite(value) or value <= 0:
        return None
    return -math.log(value) if better is Better.HIGHER else math.log(value)


def slower(log_cost: float) -> float:
    """Return the share of extra time that a difference of costs means: 0.1 is 10 % slower."""
    return math.expm1(log_cost)
