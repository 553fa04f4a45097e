"""Two one-sided tests (TOST): do two arms differ by less than a margin?

A difference that is not significant is no proof of equality: a small study never finds one. TOST reverses the
burden of proof. It rejects "the mean is -margin or less" and "the mean is margin or more", each by a
one-sided sign-flip test. Source: D. J. Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy_workloads.experiments.permutation import sign_flip

RESAMPLES = 10_000


@dataclass(frozen=True)
class Equivalence:
    """The result of a test of equivalence."""

    p_value: float
    """The larger p-value of the two tests."""
    equivalent: bool
    """True if the p-value is at most alpha."""


def equivalence(differences: Sequence[float], margin: float, alpha: float = 0.05) -> Equivalence:
    """Test whether the mean of paired differences lies between -margin and margin.

    Raises ValueError for a margin that is not above 0. Fewer than five differences never show equivalence at
    an alpha of 0.05, because the sign-flip test has no smaller p-value than 2^-n.
    """
    if not margin > 0:
        raise ValueError(f"margin: {margin} is not above 0")
    above = sign_flip([one + margin for one in differences], "greater", RESAMPLES, seed=0)
    below = sign_flip([one - margin for one in differences], "less", RESAMPLES, seed=0)
    p_value = float(max(above, below))
    return Equivalence(p_value, p_value <= alpha)
