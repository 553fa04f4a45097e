"""Turns in the life of a node's hardware, and results of its sweeps."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class NodeHealthReasons:
    """Turns in the life of a node's hardware, and results of its sweeps."""

    NEW_HARDWARE = Reason("NewHardware", "first seen, on node {node}")
    NOT_SWEPT = Reason("NotSwept", "in service, but no sweep has passed it (GuardPolicy onJoin: Accept)")
    NOT_GUARDED = Reason("NotGuarded", "no GuardPolicy is for node {node}")
    TELEMETRY_LOST = Reason(
        "TelemetryLost",
        "nothing is heard of node {node} since {since}: what is known of it stands, check its convoy-agent",
        warning=True,
    )
    AWAITS_SWEEP = Reason("AwaitsSweep", "takes no pods until a sweep has passed it")
    AWAITS_RELEASE = Reason(
        "AwaitsRelease",
        "takes no pods, and the GuardPolicy has no sweeps to retest it: set spec.release of its NodeHealth",
        warning=True,
    )
    UNDER_TEST = Reason("UnderTest", "HealthSweep {name} is under way")
    SWEEP_PASSED = Reason("SweepPassed", "HealthSweep {name} passed it")
    SWEEP_FAILED = Reason("SweepFailed", "HealthSweep {name} failed it: {why}", warning=True)
    SWEPT = Reason("Swept", "{counts}")
    SWEEP_NOT_RUN = Reason("SweepNotRun", "{why}", warning=True)
    NODE_FAILED = Reason("NodeFailed", "{node}: {why}", warning=True)
    SWEEP_INCONCLUSIVE = Reason("SweepInconclusive", "HealthSweep {name} has no verdict: {why}")
    QUALIFICATION_EXPIRED = Reason("QualificationExpired", "the last sweep that passed it is too long ago")
    SLOWER_THAN_PEERS = Reason(
        "SlowerThanPeers",
        "{slowdown:.2f} times as slow as its peers ({cause}) in {source} since {since}; it has cost "
        "{loss:.0f} GPU-seconds",
        warning=True,
    )
    CONFIRMED_SLOW = Reason("ConfirmedSlow", "out of service: {why}", warning=True)
    CLEARED = Reason("Cleared", "nothing spoke against it for {seconds} s")
    DRAINING_NODE = Reason("DrainingNode", "jobs are moved away: {why}", warning=True)
    JOB_STAYS = Reason(
        "JobStays",
        "it is drained when {jobs} is over: spec.guard.action is Observe, or nothing is saved to go on from",
    )
    DRAIN_BLOCKED = Reason(
        "DrainBlocked",
        "{pods} pods are still there {seconds} s after the drain began; nothing is forced: look at their "
        "PodDisruptionBudgets",
        warning=True,
    )
    REPAIR_NEEDED = Reason("RepairNeeded", "waits for {owner} to do step {step}: {action}", warning=True)
    REPAIR_DONE = Reason("RepairDone", "{action} is done")
    REPAIR_TIMED_OUT = Reason(
        "RepairTimedOut", "{owner} did not do {action} within {seconds} s", warning=True
    )
    REPAIRS_EXHAUSTED = Reason("RepairsExhausted", "no step of spec.repair.ladder is left", warning=True)
    REQUALIFICATION_FAILED = Reason(
        "RequalificationFailed", "{count} retests in a row failed it; the last: {why}", warning=True
    )
    LEMON = Reason("Lemon", "{count} quarantines within {seconds} s", warning=True)
    ON_PROBATION = Reason("OnProbation", "in service again, watched until {until}")
    WRONGLY_ACCUSED = Reason(
        "WronglyAccused",
        "its jobs are as slow without it, or their ranks are slow elsewhere: released, not held against it",
    )
    EXEMPTED = Reason("Exempted", "left alone until {until}, by {user}: {why}", warning=True)
    EXEMPTION_OVER = Reason("ExemptionOver", "the exemption ended at {until}")
    CONDEMNED_BY_HAND = Reason("CondemnedByHand", "out of service, by {user}: {why}", warning=True)
    NO_LONGER_CONDEMNED = Reason("NoLongerCondemned", "spec.condemned was removed: it is retested")
    RELEASED_BY_HAND = Reason("ReleasedByHand", "put back into service, by {user}: {why}", warning=True)
    OBSERVED_ONLY = Reason("ObservedOnly", "GuardPolicy mode Observe, or none: nodes are not touched")
    MOVED = Reason("HardwareMoved", "was node {before}, is node {after}")
