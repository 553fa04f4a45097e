"""Reasons about the budgets and the circuit breaker of a GuardPolicy."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class GuardingReasons:
    """Reasons about the budgets and the circuit breaker of a GuardPolicy."""

    GRANTED = Reason("Granted", "every budget allows the action")
    NOTHING_WANTED = Reason("NothingWanted", "no action is needed")
    BREAKER_OPEN = Reason(
        "BreakerOpen",
        "{want} is waiting: the circuit breaker of GuardPolicy {policy!r} is {state}",
    )
    POOL_BUDGET = Reason(
        "PoolBudget",
        "{want} is waiting: {count} nodes are being drained or repaired, the limit is {limit} "
        "(spec.budgets.poolPercent)",
    )
    RACK_BUDGET = Reason(
        "RackBudget",
        "{want} is waiting: rack {rack!r} has {count} nodes drained or in repair, the limit is {limit} "
        "(spec.budgets.perRack)",
    )
    JOB_BUDGET = Reason(
        "JobBudget",
        "{want} is waiting: a node of job {job} was drained less than {seconds} s ago "
        "(spec.budgets.jobInterval)",
    )
    RATE_BUDGET = Reason(
        "RateBudget",
        "{want} is waiting: {count} drains were started within the last hour, the limit is {limit} "
        "(spec.budgets.fleetPercentPerHour)",
    )
    QUARANTINE_BUDGET = Reason(
        "QuarantineBudget",
        "{want} is waiting: {count} nodes are out of service, the limit is {limit} "
        "(spec.budgets.quarantinedPercent)",
    )
    SPARES_BUDGET = Reason(
        "SparesBudget",
        "{want} is waiting for an idle node: {count} nodes are idle, and {limit} must stay idle "
        "(spec.budgets.reservedSpares)",
    )
    SWEEP_BUDGET = Reason(
        "SweepBudget",
        "{want} is waiting: {count} nodes are being swept, the limit is {limit} (spec.sweeps.atOncePercent)",
    )
    BREAKER_CONFIRMED = Reason(
        "TooManyConfirmed",
        "{count} of {nodes} nodes were confirmed faulty within {seconds} s",
        warning=True,
    )
    BREAKER_SUSPECT = Reason(
        "TooManySuspect",
        "{count} of {nodes} nodes are Suspect at the same time",
        warning=True,
    )
    BREAKER_SHARED = Reason(
        "CommonMode",
        "{count} of {all} confirmed nodes share {what} {name!r}: the shared {what} is a "
        "likelier cause than the nodes",
        warning=True,
    )
    BREAKER_WRONG = Reason(
        "ActionsInVain",
        "only {count} of the last {all} drains sped up the affected jobs",
        warning=True,
    )
    BREAKER_TRIAL = Reason(
        "Trial", "the circuit breaker allows the drain of one node that failed a sweep, as a trial"
    )
    BREAKER_CLOSED = Reason(
        "Quiet",
        "the circuit breaker is closed: the trial drain succeeded, or no trial was needed",
    )
