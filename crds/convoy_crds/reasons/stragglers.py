"""Reasons about stragglers: ranks that delay the other ranks."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class StragglerReasons:
    """Reasons about stragglers: ranks that delay the other ranks."""

    STRAGGLER = Reason(
        "Straggler",
        "the other ranks wait for {who} ({cause}): {slowdown} slower than the peers since step {since}, "
        "{lasting}; run: convoy why {job}",
        warning=True,
    )
    SUSPECTED_STRAGGLER = Reason(
        "StragglerSuspected",
        "the other ranks seem to wait for {who} ({cause}): {slowdown} slower since step {since}, {lasting}. "
        "This is a suspicion from the rank's own past and fewer than 3 peers: 4 ranks with the same work, or "
        "a HealthSweep of the node, would prove it; run: convoy why {job}",
        warning=True,
    )
    SLOW_TOGETHER = Reason(
        "SlowTogether",
        "the job is slower than it could be, but no node is to blame: {what}",
    )
    NO_STRAGGLER = Reason("NoStraggler", "no rank delays the others")
    DETECTOR_DEGRADED = Reason(
        "DetectorDegraded",
        "the detector missed its canary (a test rank whose timings are 1.5 times as long): timings are "
        'missing or too noisy, so "no straggler" is not reliable',
        warning=True,
    )
    NO_TIMINGS = Reason(
        "NoTimings",
        "the ranks make steps but report no timings of them, so a slow rank would not be found: see the page "
        "of this condition",
        warning=True,
    )
    LAYOUT_UNKNOWN = Reason(
        "LayoutUnknown",
        "the ranks send data to one another, as pipeline stages do, but their stages are unknown, so Convoy "
        "compares no ranks: call job.report_layout(stage=..., replica=...) in the program",
        warning=True,
    )
    TOO_FEW_PEERS = Reason(
        "TooFewPeers",
        "no rank is proven slow, because fewer than 4 ranks do the same work: Convoy reports a rank that "
        "becomes slower than 1 or 2 peers as a suspect, but may miss one that is slow from the first step",
    )
