"""Reasons for state changes of a node's hardware, and for results of its sweeps."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class NodeHealthReasons:
    """Reasons for state changes of a node's hardware, and for results of its sweeps."""

    NEW_HARDWARE = Reason("NewHardware", "hardware first seen on node {node}")
    NOT_SWEPT = Reason(
        "NotSwept",
        "the node is in service without a passed sweep, because its GuardPolicy has onJoin: Accept",
    )
    NOT_GUARDED = Reason("NotGuarded", "no GuardPolicy selects node {node}")
    TELEMETRY_LOST = Reason(
        "TelemetryLost",
        "node {node} has sent no telemetry since {since}, so its health may be out of date; check its "
        "convoy-agent",
        warning=True,
    )
    AWAITS_SWEEP = Reason("AwaitsSweep", "the node is out of service until it passes a sweep")
    AWAITS_RELEASE = Reason(
        "AwaitsRelease",
        "the node is out of service, and its GuardPolicy has no sweeps that could retest it: return it to "
        "service with convoy guard release",
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
        "the last passed sweep is older than spec.qualification.expiry of the GuardPolicy",
    )
    SLOWER_THAN_PEERS = Reason(
        "SlowerThanPeers",
        "the node takes {slowdown:.2f} times as long as its peers ({cause}) in job {source} since {since}; "
        "cost so far: {loss:.0f} GPU-seconds",
        warning=True,
    )
    CONFIRMED_SLOW = Reason("ConfirmedSlow", "the node is out of service: {why}", warning=True)
    CLEARED = Reason("Cleared", "there was no evidence against the node for {seconds} s")
    DRAINING_NODE = Reason(
        "DrainingNode",
        "the node is being drained, and its jobs are swapped to other nodes: {why}",
        warning=True,
    )
    JOB_STAYS = Reason(
        "JobStays",
        "the drain waits until these jobs have left the node: {jobs}. A ServingJob replaces its replicas "
        "itself. Convoy cannot swap a TrainingJob whose spec.guard.action is Observe, or that has no saved "
        "state to resume from",
    )
    DRAIN_BLOCKED = Reason(
        "DrainBlocked",
        "{pods} pods are still on the node {seconds} s after the drain started. Convoy does not force them "
        "off the node: check their PodDisruptionBudgets",
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
    REPAIRS_EXHAUSTED = Reason(
        "RepairsExhausted",
        "every step of spec.repair.ladder was tried, and the node is still faulty",
        warning=True,
    )
    REQUALIFICATION_FAILED = Reason(
        "RequalificationFailed",
        "{count} consecutive retests failed; the last one: {why}",
        warning=True,
    )
    LEMON = Reason("Lemon", "the node was quarantined {count} times within {seconds} s", warning=True)
    ON_PROBATION = Reason("OnProbation", "the node is in service again, and under observation until {until}")
    WRONGLY_ACCUSED = Reason(
        "WronglyAccused",
        "the node is cleared: its jobs are just as slow without it, or their slow ranks are slow on other "
        "nodes too",
    )
    EXEMPTED = Reason("Exempted", "{user} has exempted the node until {until}: {why}", warning=True)
    EXEMPTION_OVER = Reason("ExemptionOver", "the exemption ended at {until}")
    CONDEMNED_BY_HAND = Reason("CondemnedByHand", "{user} has condemned the node: {why}", warning=True)
    NO_LONGER_CONDEMNED = Reason("NoLongerCondemned", "spec.condemned was removed, so the node is retested")
    RELEASED_BY_HAND = Reason(
        "ReleasedByHand", "{user} has returned the node to service: {why}", warning=True
    )
    OBSERVED_ONLY = Reason(
        "ObservedOnly",
        "Convoy takes no action: the GuardPolicy has mode Observe, or no GuardPolicy selects the node",
    )
    WOULD_ACT = Reason(
        "WouldAct",
        "would {action}: {why}. GuardPolicy {policy} only observes: select the node with a GuardPolicy of "
        "mode Act, or drain it by hand",
    )
    MOVED = Reason("HardwareMoved", "the hardware moved from node {before} to node {after}")
