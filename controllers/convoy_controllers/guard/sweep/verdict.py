"""Verdicts of a health sweep on nodes, links and racks, with the figures behind them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Outcome of a test: pass, fail, or inconclusive if the test cannot decide."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class Reason(StrEnum):
    """Reason of a verdict."""

    MEETS_REFERENCE = "MeetsReference"
    SLOW_WITH_ALL = "SlowWithAllPartners"
    SLOW_LINK = "SlowLink"
    SLOW_RACK = "SlowRack"
    SLOW_TOGETHER = "SlowTogether"
    """The node is slow only in groups of nodes."""
    BELOW_REFERENCE = "BelowReference"
    BELOW_FLOOR = "BelowFloor"
    ABOVE_FLOOR = "AboveFloor"
    UNSTEADY = "Unsteady"
    CORRUPT = "SilentCorruption"
    MEMORY_ERRORS = "UncorrectedMemoryErrors"
    HUNG = "ProbeHung"
    TOO_FEW_NODES = "TooFewNodes"
    TOO_FEW_REFERENCES = "TooFewReferences"
    TOO_NOISY = "TooNoisy"
    NOT_MEASURED = "NotMeasured"
    LEFT = "LeftTheSweep"
    UNCLEAR = "Unclear"
    NOT_REPRODUCED = "NotReproduced"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A sweep's verdict on one subject."""

    subject: str
    """Hardware name of a node, `a|b` for the link between two nodes, or `rack/NAME`."""
    outcome: Outcome
    reason: Reason
    words: str
    """Explanation of the verdict for people."""
    evidence: tuple[tuple[str, float], ...] = ()
    """Figures by name. Ratios are shares: 0.1 is 10 % slower than the reference."""
    again: bool = False
    """True if one more run of the same test may give a clear outcome."""
    sticky: bool = False
    """True if a failure stays until a person clears it or the hardware changes."""


def kept(before: Verdict | None, now: Verdict) -> Verdict:
    """Return the verdict that applies after the verdict `before` is followed by the verdict `now`. A sticky
    failure stays even if `now` is a pass.
    """
    if before is not None and before.sticky and before.outcome is Outcome.FAIL:
        return before
    return now


def worst(verdicts: list[Verdict]) -> Verdict:
    """Return the verdict that applies to a node with several tests: a sticky failure first, then another
    failure, then an inconclusive verdict, then a pass.
    """
    order = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    return min(verdicts, key=lambda one: (not one.sticky, order.index(one.outcome)))
