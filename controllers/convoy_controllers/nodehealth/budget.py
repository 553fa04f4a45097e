"""Budgets of a fleet: which nodes may be swept, quarantined or drained now, and why other nodes may not.

All budgets are counted from stored statuses, so a restarted operator gets the same counts. A node frees a
budget only when its new status is stored. Another node can then use the budget in a later reconcile, never
in the same one. Otherwise an operator that dies after it wrote only the other node's status would leave the
budget exceeded. Retests and returns to service are limited only by the number of simultaneous sweeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from convoy_controllers.nodehealth import breaker as breakers
from convoy_controllers.nodehealth.breaker import AssessedNode
from convoy_controllers.nodehealth.machine import SWEEPS, Request, RequestKind
from convoy_controllers.nodehealth.record import ACCUSED, IN_SERVICE, parse_duration
from convoy_controllers.nodehealth.sweeping import OPTIONAL_CAUSES
from convoy_crds.guardpolicy import BreakerState, BreakerStatus, GuardPolicy
from convoy_crds.meta import seconds
from convoy_crds.nodehealth import State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

_HOUR = timedelta(hours=1)
_FIRST = {
    RequestKind.DRAIN: 0,
    RequestKind.QUARANTINE: 1,
    RequestKind.SWEEP: 2,
    RequestKind.TEST: 3,
    RequestKind.ROUTINE: 4,
}
_TRUSTED = IN_SERVICE - {State.SUSPECT}
_SWEPT_FIRST = (State.REQUALIFYING, State.QUARANTINED, State.GATED, State.SUSPECT)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a request is refused: the exhausted budget or the breaker, and its current state."""

    reason: Reason
    message: str


@dataclass(slots=True)
class Allocation:
    """The granted and refused requests of one reconcile of the fleet."""

    breaker: BreakerStatus
    granted: dict[str, Request] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    """Refusal of the first request of each node that got no grant, by node."""


def share(nodes: int, percent: int, least: int = 1) -> int:
    """Return `percent` of the nodes, rounded down, but at least `least`."""
    return max(least, nodes * percent // 100)


class BudgetUsage:
    """Current use of every budget. The use grows with every granted request."""

    def __init__(self, policy: GuardPolicy, nodes: Mapping[str, AssessedNode], now: datetime) -> None:
        self.rules = policy.spec.budgets
        self.size = sum(1 for one in nodes.values() if one.facts.node is not None or one.both(ACCUSED))
        held = [
            one.status
            for one in nodes.values()
            if one.status.internal.holds_token or one.stored.internal.holds_token
        ]
        self.pool = len(held)
        self.racks = Counter(status.actions[-1].rack for status in held if status.actions)
        recent = [action for one in nodes.values() for action in one.status.actions]
        self.hour = sum(1 for action in recent if now - action.at < _HOUR)
        span = parse_duration(self.rules.job_interval)
        self.jobs = {job for action in recent if now - action.at < span for job in action.jobs}
        self.accused = sum(1 for one in nodes.values() if one.either(ACCUSED))
        sweeping = [one.status.sweep for one in nodes.values() if one.status.sweep is not None]
        self.sweeps = len(sweeping)
        self.required_sweeps = sum(1 for one in sweeping if one.cause not in OPTIONAL_CAUSES)
        sweeps = policy.spec.sweeps
        self.sweeps_limit = share(self.size, sweeps.at_once_percent) if sweeps is not None else 0
        swapping = sum(1 for one in nodes.values() if _swaps(one) and not one.facts.idle)
        self.spares = sum(1 for one in nodes.values() if _spare(one)) - swapping

    def refuses(self, kind: RequestKind, one: AssessedNode) -> Refusal | None:
        """Return the refusal of the first budget that is exhausted for this request; None if all budgets
        permit it.
        """
        if kind is RequestKind.SWEEP:
            # Do not count routine sweeps: they must not delay a node's return to service.
            return _over(Reasons.SWEEP_BUDGET, kind, self.required_sweeps, self.sweeps_limit)
        if kind is RequestKind.ROUTINE:
            refused = _over(Reasons.SWEEP_BUDGET, kind, self.sweeps, self.sweeps_limit)
            return refused or self._spares(kind, max(1, self.rules.reserved_spares))
        if kind is RequestKind.QUARANTINE:
            limit = share(self.size, self.rules.quarantined_percent, 2)
            refused = _over(Reasons.QUARANTINE_BUDGET, kind, self.accused, limit)
            idle = one.facts.idle and self.rules.reserved_spares > 0
            return refused or (self._spares(kind, self.rules.reserved_spares) if idle else None)
        rack, jobs = one.status.node_ref.rack, one.facts.node.jobs if one.facts.node else ()
        recent_jobs = sorted(self.jobs.intersection(jobs))
        hourly = share(self.size, self.rules.fleet_percent_per_hour)
        if kind is RequestKind.TEST:
            return (
                _over(Reasons.SWEEP_BUDGET, kind, self.sweeps, self.sweeps_limit)
                or _over(Reasons.RATE_BUDGET, kind, self.hour, hourly)
                or (self._job(kind, recent_jobs[0]) if recent_jobs else None)
                or self._spares(kind, self.rules.reserved_spares)
            )
        return (
            _over(Reasons.POOL_BUDGET, kind, self.pool, share(self.size, self.rules.pool_percent))
            or _over(Reasons.RATE_BUDGET, kind, self.hour, hourly)
            or (
                _over(Reasons.RACK_BUDGET, kind, self.racks[rack], self.rules.per_rack, rack)
                if rack
                else None
            )
            or (self._job(kind, recent_jobs[0]) if recent_jobs else None)
            or (None if one.facts.idle else self._spares(kind, self.rules.reserved_spares))
        )

    def _job(self, kind: RequestKind, job: str) -> Refusal:
        span = seconds(self.rules.job_interval)
        return Refusal(Reasons.JOB_BUDGET, Reasons.JOB_BUDGET.format(want=kind, job=job, seconds=span))

    def _spares(self, kind: RequestKind, reserved: int) -> Refusal | None:
        """Return a refusal if no more than `reserved` idle nodes are available. The request uses an idle
        node: the node itself, or another one for a swapped job.
        """
        if self.spares > reserved:
            return None
        message = Reasons.SPARES_BUDGET.format(want=kind, count=self.spares, limit=reserved)
        return Refusal(Reasons.SPARES_BUDGET, message)

    def record(self, kind: RequestKind, one: AssessedNode) -> None:
        """Add a granted request to the use of the budgets."""
        if kind in SWEEPS:
            self.sweeps += 1
            self.required_sweeps += 1 if kind is RequestKind.SWEEP else 0
            self.spares -= 1 if kind is RequestKind.ROUTINE else 0
        elif kind is RequestKind.QUARANTINE:
            self.accused += 1
            self.spares -= 1 if _spare(one) else 0
        elif kind is RequestKind.TEST:
            self.sweeps += 1
            self.hour += 1
            self.jobs.update(one.facts.node.jobs if one.facts.node else ())
            self.spares -= 1
        else:
            self.pool += 1
            self.hour += 1
            self.racks[one.status.node_ref.rack] += 1
            self.jobs.update(one.facts.node.jobs if one.facts.node else ())
            self.spares -= 0 if one.facts.idle else 1


def allocate(
    policy: GuardPolicy,
    nodes: Mapping[str, AssessedNode],
    requests: Mapping[str, tuple[Request, ...]],
    now: datetime,
) -> Allocation:
    """Grant all requests that the breaker and every budget permit, in order of priority."""
    allocation = Allocation(breakers.next_state(policy, nodes, now))
    usage = BudgetUsage(policy, nodes, now)
    for name, request in _in_order(nodes, requests):
        if name in allocation.granted:
            continue
        one = nodes[name]
        refused = _stopped(allocation.breaker, policy, name, one, request) or usage.refuses(request.kind, one)
        if refused is not None:
            if request.kind is not RequestKind.ROUTINE:
                allocation.refused.setdefault(name, refused)
            continue
        allocation.refused.pop(name, None)
        allocation.granted[name] = request
        usage.record(request.kind, one)
        half_open = allocation.breaker.state is BreakerState.HALF_OPEN
        if half_open and request.kind not in SWEEPS and allocation.breaker.trial != name:
            allocation.breaker = allocation.breaker.model_copy(update={"trial": name})
    return allocation


def _in_order(
    nodes: Mapping[str, AssessedNode], requests: Mapping[str, tuple[Request, ...]]
) -> Iterable[tuple[str, Request]]:
    """Return the requests by priority: drains, quarantines, required sweeps, tests of suspects, routine
    sweeps.

    Among drains and quarantines the most costly node comes first. Among required sweeps, the node with the
    fewest steps to its return to service comes first.
    """

    def rank(entry: tuple[str, Request]) -> tuple[int, float, str]:
        name, request = entry
        status = nodes[name].status
        if request.kind is RequestKind.ROUTINE:
            # Routine requests keep the order in which they were requested.
            return _FIRST[request.kind], 0.0, ""
        if request.kind is RequestKind.SWEEP:
            known = status.state in _SWEPT_FIRST
            return _FIRST[request.kind], float(_SWEPT_FIRST.index(status.state) if known else 9), name
        return _FIRST[request.kind], -sum(one.loss - one.forgiven for one in status.evidence), name

    return sorted(((name, request) for name, several in requests.items() for request in several), key=rank)


def _stopped(
    breaker: BreakerStatus, policy: GuardPolicy, name: str, one: AssessedNode, request: Request
) -> Refusal | None:
    if request.kind in SWEEPS or breakers.admits(breaker, name, one.status):
        return None
    message = Reasons.BREAKER_OPEN.format(
        want=request.kind, policy=policy.metadata.name, state=f"{breaker.state}: {breaker.message}"
    )
    return Refusal(Reasons.BREAKER_OPEN, message)


def _swaps(one: AssessedNode) -> bool:
    refs = (one.status.sweep, one.stored.sweep)
    return one.either({State.DRAINING}) or any(ref is not None and ref.swaps for ref in refs)


def _spare(one: AssessedNode) -> bool:
    node = one.facts.node
    tested = one.status.sweep is not None or one.stored.sweep is not None
    return node is not None and node.schedulable and node.pods == 0 and one.both(_TRUSTED) and not tested


def _over(reason: Reason, kind: RequestKind, count: int, limit: int, rack: str = "") -> Refusal | None:
    if count < limit:
        return None
    return Refusal(reason, reason.format(want=kind, count=count, limit=limit, rack=rack))
