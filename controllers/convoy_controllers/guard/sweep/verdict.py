"""What a sweep says of a node, a link or a rack, with the figures that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """Three-valued: a test that cannot tell says so."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class Reason(StrEnum):
    """Why a verdict is what it is."""

    MEETS_REFERENCE = "MeetsReference"
    SLOW_WITH_ALL = "SlowWithAllPartners"
    SLOW_LINK = "SlowLink"
    SLOW_RACK = "SlowRack"
    SLOW_TOGETHER = "SlowTogether"
    """Slow in groups only."""
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
    """One sentence of a sweep about one subject."""

    subject: str
    """Hardware id of a node; `a|b` for the link between two; `rack/NAME`."""
    outcome: Outcome
    reason: Reason
    words: str
    """For a person."""
    evidence: tuple[tuple[str, float], ...] = ()
    """Figures by name; ratios are shares (0.1 is 10 % slower than the reference)."""
    again: bool = False
    """One more run of the same test may decide it."""
    sticky: bool = False
    """Stays Fail until a person clears it or the hardware is another."""


def kept(before: Verdict | None, now: Verdict) -> Verdict:
    """What holds once `now` has come after `before`: a sticky failure outlives a later pass."""
    if before is not None and before.sticky and before.outcome is Outcome.FAIL:
        return before
    return now


def worst(verdicts: list[Verdict]) -> Verdict:
    """The one that decides over a node that several tests have judged."""
    order = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    return min(verdicts, key=lambda one: (not one.sticky, order.index(one.outcome)))
