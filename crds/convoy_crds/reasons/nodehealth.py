"""Reasons for state changes of a node's hardware, and for results of its sweeps."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class NodeHealthReasons:
    """Reasons for state changes of a node's hardware, and for results of its sweeps."""

    NEW_HARDWARE = Reason("NewHardware", "hardware first seen on node {node}")
    NOT_SWEPT = Reason(
        "NotSwept",
        "in service, but the node has not passed a sweep yet (GuardPolicy onJoin: Accept)",
    )
    NOT_GUARDED = Reason("NotGuarded", "no GuardPolicy selects node {node}")
    TELEMETRY_LOST = Reason(
        "TelemetryLost",
        "node {node} has sent no telemetry since {since}, so its health may be out of date; check its "
        "convoy-agent",
        warning=True,
    )
    AWAITS_SWEEP = Reason("AwaitsSweep", "out of service until the node passes a sweep")
    AWAITS_RELEASE = Reason(
        "AwaitsRelease",
        "out of service, and the GuardPolicy has no sweeps to retest the node: set spec.release of its "
        "NodeHealth",
        warning=True,
    )
    UNDER_TEST = Reason("UnderTest", "HealthSweep {name} is running")
    SWEEP_PASSED = Reason("SweepPassed", "the node passed HealthSweep {name}")
    SWEEP_FAILED = Reason("SweepFailed", "the node failed HealthSweep {name}: {why}", warning=True)
    SWEPT = Reason("Swept", "{counts}")
    SWEEP_NOT_RUN = Reason("SweepNotRun", "{why}", warning=True)
    NODE_FAILED = Reason("NodeFailed", "{node}: {why}", warning=True)
    SWEEP_INCONCLUSIVE = Reason("SweepInconclusive", "HealthSweep {name} has no verdict: {why}")
    QUALIFICATION_EXPIRED = Reason(
        "QualificationExpired",
        "the last passed sweep is older than spec.qualification.expiry",
    )
    SLOWER_THAN_PEERS = Reason(
        "SlowerThanPeers",
        "takes {slowdown:.2f} times as long as its peers ({cause}) in job {source} since {since}; cost so "
        "far: {loss:.0f} GPU-seconds",
        warning=True,
    )
    CONFIRMED_SLOW = Reason("ConfirmedSlow", "out of service: {why}", warning=True)
    CLEARED = Reason("Cleared", "no evidence against the node for {seconds} s")
    DRAINING_NODE = Reason(
        "DrainingNode",
        "the node is being drained, and its jobs move to other nodes: {why}",
        warning=True,
    )
    JOB_STAYS = Reason(
        "JobStays",
        "the drain waits for the end of {jobs}: spec.guard.action is Observe, or no saved state exists to "
        "resume from",
    )
    DRAIN_BLOCKED = Reason(
        "DrainBlocked",
        "{pods} pods are still on the node {seconds} s after the drain started, and Convoy does not force "
        "them off: check their PodDisruptionBudgets",
        warning=True,
    )
    REPAIR_NEEDED = Reason(
        "RepairNeeded",
        "waiting for {owner} to do repair step {step}: {action}",
        warning=True,
    )
    REPAIR_DONE = Reason("RepairDone", "{action} is done")
    REPAIR_TIMED_OUT = Reason(
        "RepairTimedOut",
        "{owner} did not finish {action} within {seconds} s",
        warning=True,
    )
    REPAIRS_EXHAUSTED = Reason("RepairsExhausted", "no step of spec.repair.ladder is left", warning=True)
    REQUALIFICATION_FAILED = Reason(
        "RequalificationFailed",
        "{count} consecutive retests failed; the last: {why}",
        warning=True,
    )
    LEMON = Reason("Lemon", "the node was quarantined {count} times within {seconds} s", warning=True)
    ON_PROBATION = Reason("OnProbation", "in service again, under observation until {until}")
    WRONGLY_ACCUSED = Reason(
        "WronglyAccused",
        "the node is cleared: its jobs are just as slow without it, or their slow ranks are slow on other "
        "nodes too",
    )
    EXEMPTED = Reason("Exempted", "exempt until {until}, requested by {user}: {why}", warning=True)
    EXEMPTION_OVER = Reason("ExemptionOver", "the exemption ended at {until}")
    CONDEMNED_BY_HAND = Reason("CondemnedByHand", "condemned by {user}: {why}", warning=True)
    NO_LONGER_CONDEMNED = Reason("NoLongerCondemned", "spec.condemned was removed, so the node is retested")
    RELEASED_BY_HAND = Reason("ReleasedByHand", "returned to service by {user}: {why}", warning=True)
    OBSERVED_ONLY = Reason(
        "ObservedOnly",
        "Convoy takes no action: the GuardPolicy has mode Observe, or no GuardPolicy selects the node",
    )
    MOVED = Reason("HardwareMoved", "the hardware moved from node {before} to node {after}")
