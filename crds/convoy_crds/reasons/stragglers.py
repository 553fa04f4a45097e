"""Findings about ranks that keep the others waiting."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class StragglerReasons:
    """Findings about ranks that keep the others waiting."""

    STRAGGLER = Reason(
        "Straggler",
        "{who} makes the others wait ({cause}): {slowdown} longer than its peers since step {since}, "
        "{lasting}; see: convoy why {job}",
        warning=True,
    )
    SLOW_TOGETHER = Reason(
        "SlowTogether",
        "the job is slower than it could be, and no node is to blame: {what}",
    )
    NO_STRAGGLER = Reason("NoStraggler", "no rank keeps the others waiting")
    DETECTOR_DEGRADED = Reason(
        "DetectorDegraded",
        "a rank that was made up to be half as slow again was not found: the ranks' times say too little, or "
        "scatter too much; that nobody is named says nothing",
        warning=True,
    )
    TOO_FEW_PEERS = Reason(
        "TooFewPeers",
        "nobody is judged: it takes 4 ranks that do the same work to tell who of them is slow",
    )
