"""Who of a fleet may be swept, quarantined or drained now, and why the others may not.

All budgets are counted from what is stored of the nodes, so that an operator that starts again counts the
same. What a node gives back is granted again once that is stored, not in the same look: of two writes the
grant may be the first, or the only one. Nothing here keeps a node from being retested or returned to service
but the number of sweeps at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from convoy_controllers.nodehealth import breaker as breakers
from convoy_controllers.nodehealth.breaker import Judged
from convoy_controllers.nodehealth.machine import SWEEPS, Want, Wish
from convoy_controllers.nodehealth.record import ACCUSED, IN_SERVICE, length
from convoy_controllers.nodehealth.sweeping import UNASKED
from convoy_crds.guardpolicy import BreakerState, BreakerStatus, GuardPolicy
from convoy_crds.meta import seconds
from convoy_crds.nodehealth import State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

_HOUR = timedelta(hours=1)
_FIRST = {Want.DRAIN: 0, Want.QUARANTINE: 1, Want.SWEEP: 2, Want.ROUTINE: 3}
_TRUSTED = IN_SERVICE - {State.SUSPECT}
_SWEPT_FIRST = (State.REQUALIFYING, State.QUARANTINED, State.GATED, State.SUSPECT)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which budget is in the way, and how full it is."""

    reason: Reason
    message: str


@dataclass(slots=True)
class Allocation:
    """What a look at the whole fleet allows."""

    breaker: BreakerStatus
    granted: dict[str, Wish] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    """Why the first wish of a node was not granted."""


def share(nodes: int, percent: int, least: int = 1) -> int:
    """So many per cent of the nodes, rounded down, but at least so many."""
    return max(least, nodes * percent // 100)


class Ledger:
    """How full every budget is; it fills as wishes are granted."""

    def __init__(self, policy: GuardPolicy, nodes: Mapping[str, Judged], now: datetime) -> None:
        self.rules = policy.spec.budgets
        self.size = sum(1 for one in nodes.values() if one.facts.node is not None or one.both(ACCUSED))
        held = [one.status for one in nodes.values() if one.status.holds_token or one.stored.holds_token]
        self.pool = len(held)
        self.racks = Counter(status.actions[-1].rack for status in held if status.actions)
        recent = [action for one in nodes.values() for action in one.status.actions]
        self.hour = sum(1 for action in recent if now - action.at < _HOUR)
        span = length(self.rules.job_interval)
        self.jobs = {job for action in recent if now - action.at < span for job in action.jobs}
        self.accused = sum(1 for one in nodes.values() if one.either(ACCUSED))
        sweeping = [one.status.sweep for one in nodes.values() if one.status.sweep is not None]
        self.sweeps = len(sweeping)
        self.asked = sum(1 for one in sweeping if one.cause not in UNASKED)
        sweeps = policy.spec.sweeps
        self.sweeps_limit = share(self.size, sweeps.at_once_percent) if sweeps is not None else 0
        moving = sum(1 for one in nodes.values() if one.either({State.DRAINING}) and not one.facts.idle)
        self.spares = sum(1 for one in nodes.values() if _spare(one)) - moving

    def refuses(self, want: Want, one: Judged) -> Refusal | None:
        """The first budget that has nothing left for this; None when all grant it."""
        if want is Want.SWEEP:
            # What is routine keeps nobody from returning to service.
            return _over(Reasons.SWEEP_BUDGET, want, self.asked, self.sweeps_limit)
        if want is Want.ROUTINE:
            refused = _over(Reasons.SWEEP_BUDGET, want, self.sweeps, self.sweeps_limit)
            return refused or self._spares(want, max(1, self.rules.reserved_spares))
        if want is Want.QUARANTINE:
            limit = share(self.size, self.rules.quarantined_percent, 2)
            refused = _over(Reasons.QUARANTINE_BUDGET, want, self.accused, limit)
            idle = one.facts.idle and self.rules.reserved_spares > 0
            return refused or (self._spares(want, self.rules.reserved_spares) if idle else None)
        rack, jobs = one.status.node_ref.rack, one.facts.node.jobs if one.facts.node else ()
        taken = sorted(self.jobs.intersection(jobs))
        return (
            _over(Reasons.POOL_BUDGET, want, self.pool, share(self.size, self.rules.pool_percent))
            or _over(
                Reasons.RATE_BUDGET, want, self.hour, share(self.size, self.rules.fleet_percent_per_hour)
            )
            or (
                _over(Reasons.RACK_BUDGET, want, self.racks[rack], self.rules.per_rack, rack)
                if rack
                else None
            )
            or (self._job(want, taken[0]) if taken else None)
            or (None if one.facts.idle else self._spares(want, self.rules.reserved_spares))
        )

    def _job(self, want: Want, job: str) -> Refusal:
        span = seconds(self.rules.job_interval)
        return Refusal(Reasons.JOB_BUDGET, Reasons.JOB_BUDGET.format(want=want, job=job, seconds=span))

    def _spares(self, want: Want, reserved: int) -> Refusal | None:
        """Whether one idle node can be spared: a job that moves takes one, too."""
        if self.spares > reserved:
            return None
        message = Reasons.SPARES_BUDGET.format(want=want, count=self.spares, limit=reserved)
        return Refusal(Reasons.SPARES_BUDGET, message)

    def take(self, want: Want, one: Judged) -> None:
        """Counts what was granted."""
        if want in SWEEPS:
            self.sweeps += 1
            self.asked += 1 if want is Want.SWEEP else 0
            self.spares -= 1 if want is Want.ROUTINE else 0
        elif want is Want.QUARANTINE:
            self.accused += 1
            self.spares -= 1 if _spare(one) else 0
        else:
            self.pool += 1
            self.hour += 1
            self.racks[one.status.node_ref.rack] += 1
            self.jobs.update(one.facts.node.jobs if one.facts.node else ())
            self.spares -= 0 if one.facts.idle else 1


def allocate(
    policy: GuardPolicy,
    nodes: Mapping[str, Judged],
    wishes: Mapping[str, tuple[Wish, ...]],
    now: datetime,
) -> Allocation:
    """Grants what the breaker and every budget leave room for, what costs most first."""
    allocation = Allocation(breakers.next_state(policy, nodes, now))
    ledger = Ledger(policy, nodes, now)
    for name, wish in _in_order(nodes, wishes):
        if name in allocation.granted:
            continue
        one = nodes[name]
        refused = _stopped(allocation.breaker, policy, name, one, wish) or ledger.refuses(wish.want, one)
        if refused is not None:
            if wish.want is not Want.ROUTINE:
                allocation.refused.setdefault(name, refused)
            continue
        allocation.refused.pop(name, None)
        allocation.granted[name] = wish
        ledger.take(wish.want, one)
        half_open = allocation.breaker.state is BreakerState.HALF_OPEN
        if half_open and wish.want not in SWEEPS and allocation.breaker.trial != name:
            allocation.breaker = allocation.breaker.model_copy(update={"trial": name})
    return allocation


def _in_order(
    nodes: Mapping[str, Judged], wishes: Mapping[str, tuple[Wish, ...]]
) -> Iterable[tuple[str, Wish]]:
    """Drains, quarantines, sweeps; among these what has cost most, or is nearest to its return."""

    def rank(entry: tuple[str, Wish]) -> tuple[int, float, str]:
        name, wish = entry
        status = nodes[name].status
        if wish.want is Want.ROUTINE:
            return _FIRST[wish.want], 0.0, ""  # in the order in which they are wanted
        if wish.want is Want.SWEEP:
            known = status.state in _SWEPT_FIRST
            return _FIRST[wish.want], float(_SWEPT_FIRST.index(status.state) if known else 9), name
        return _FIRST[wish.want], -sum(one.loss - one.forgiven for one in status.evidence), name

    return sorted(((name, wish) for name, several in wishes.items() for wish in several), key=rank)


def _stopped(
    breaker: BreakerStatus, policy: GuardPolicy, name: str, one: Judged, wish: Wish
) -> Refusal | None:
    if wish.want in SWEEPS or breakers.admits(breaker, name, one.status):
        return None
    message = Reasons.BREAKER_OPEN.format(
        want=wish.want, policy=policy.metadata.name, state=f"{breaker.state}: {breaker.message}"
    )
    return Refusal(Reasons.BREAKER_OPEN, message)


def _spare(one: Judged) -> bool:
    node = one.facts.node
    tested = one.status.sweep is not None or one.stored.sweep is not None
    return node is not None and node.schedulable and node.pods == 0 and one.both(_TRUSTED) and not tested


def _over(reason: Reason, want: Want, count: int, limit: int, rack: str = "") -> Refusal | None:
    if count < limit:
        return None
    return Refusal(reason, reason.format(want=want, count=count, limit=limit, rack=rack))
