"""Tests of equivalence and of non-inferiority: do two arms differ by less than a margin?

A difference that is not significant is no proof of equality: a small study never finds one. Both tests
reverse the burden of proof. Two one-sided tests (TOST) reject "the mean is -margin or less" and "the mean is
margin or more", each by a sign-flip test. Non-inferiority needs only the first of them. Source: D. J.
Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy_workloads.experiments.permutation import sign_flip

ALPHA = 0.05
"""Largest p-value that counts as proof."""
RESAMPLES = 10_000


@dataclass(frozen=True)
class Equivalence:
    """The result of a test of equivalence."""

    p_value: float
    """The larger p-value of the two tests."""
    equivalent: bool
    """True if the p-value is at most alpha."""


def equivalence(differences: Sequence[float], margin: float, alpha: float = ALPHA) -> Equivalence:
    """Test whether the mean of paired differences lies between -margin and margin.

    Raises ValueError for a margin that is not above 0. Fewer than five differences never show equivalence at
    an alpha of 0.05, because the sign-flip test has no smaller p-value than 2^-n.
    """
    above = not_worse(differences, margin)
    below = sign_flip([one - margin for one in differences], "less", RESAMPLES, seed=0)
    p_value = float(max(above, below))
    return Equivalence(p_value, p_value <= alpha)


def not_worse(gains: Sequence[float], margin: float) -> float:
    """Return the p-value of the mean of paired gains being -margin or less. A small one shows that an arm is
    not worse by the margin; it may be better by any amount.

    Raises ValueError for a margin that is not above 0.
    """
    if not margin > 0:
        raise ValueError(f"margin: {margin} is not above 0")
    return float(sign_flip([one + margin for one in gains], "greater", RESAMPLES, seed=0))
