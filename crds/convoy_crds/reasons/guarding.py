"""Budgets and the breaker of a GuardPolicy."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class GuardingReasons:
    """Budgets and the breaker of a GuardPolicy."""

    GRANTED = Reason("Granted", "every budget grants it")
    NOTHING_WANTED = Reason("NothingWanted", "nothing is to be done")
    BREAKER_OPEN = Reason("BreakerOpen", "{want} waits: the breaker of GuardPolicy {policy!r} is {state}")
    POOL_BUDGET = Reason("PoolBudget", "{want} waits: {count} of {limit} nodes are drained or repaired")
    RACK_BUDGET = Reason("RackBudget", "{want} waits: {count} of {limit} nodes of rack {rack!r} are")
    JOB_BUDGET = Reason("JobBudget", "{want} waits: job {job} lost a node less than {seconds} s ago")
    RATE_BUDGET = Reason("RateBudget", "{want} waits: {count} of {limit} drains of this hour were begun")
    QUARANTINE_BUDGET = Reason(
        "QuarantineBudget", "{want} waits: {count} of {limit} nodes are out of service on suspicion"
    )
    SPARES_BUDGET = Reason(
        "SparesBudget", "{want} waits for an idle node: {count} are left, {limit} of them are reserved"
    )
    SWEEP_BUDGET = Reason("SweepBudget", "{want} waits: {count} of {limit} nodes are swept")
    BREAKER_CONFIRMED = Reason(
        "TooManyConfirmed", "{count} of {nodes} nodes were confirmed within {seconds} s", warning=True
    )
    BREAKER_SUSPECT = Reason("TooManySuspect", "{count} of {nodes} nodes are suspect", warning=True)
    BREAKER_SHARED = Reason(
        "CommonMode", "{count} of {all} confirmed nodes share {what} {name!r}", warning=True
    )
    BREAKER_WRONG = Reason(
        "ActionsInVain", "{count} of the last {all} actions did the jobs any good", warning=True
    )
    BREAKER_TRIAL = Reason("Trial", "one node that failed a sweep is let through")
    BREAKER_CLOSED = Reason("Quiet", "the node that was let through was rightly accused")
