"""The breaker of a policy. It opens when so many nodes seem faulty that the guard itself may be mistaken.
An open breaker permits no quarantine and no drain.

A node is confirmed once the evidence against it suffices for an action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from convoy_controllers.nodehealth import evidence
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodehealth.record import ACCUSED, parse_duration
from convoy_crds.guardpolicy import Breaker, BreakerState, BreakerStatus, GuardPolicy
from convoy_crds.nodehealth import Action, EvidenceKind, NodeHealthStatus, Outcome, State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

LEAST_SHARED = 3
"""Minimum number of confirmed nodes before a rack, driver or job that they have in common can open the
breaker.
"""
LEAST_OUTCOMES, MOST_OUTCOMES = 4, 10
_FEW = 2


class AssessedNode(NamedTuple):
    """A node with its next status, before any of its requests is granted."""

    status: NodeHealthStatus
    facts: HardwareFacts
    stored: NodeHealthStatus
    """Status that the API server stores. Count it in addition to `status`, because the operator may die
    before it writes `status`.
    """

    def either(self, states: Container[State]) -> bool:
        """Return True if the stored status, the new status or both are in one of the states."""
        return self.status.state in states or self.stored.state in states

    def both(self, states: Container[State]) -> bool:
        """Return True if the stored status and the new status are each in one of the states."""
        return self.status.state in states and self.stored.state in states


class Trip(NamedTuple):
    """Reason why the breaker opens."""

    reason: Reason
    message: str


def size(nodes: Mapping[str, AssessedNode]) -> int:
    """Return the number of nodes that percentages refer to: nodes that exist, and deleted nodes that the
    guard still has out of service.
    """
    return sum(1 for one in nodes.values() if one.facts.node is not None or one.status.state in ACCUSED)


def next_state(policy: GuardPolicy, nodes: Mapping[str, AssessedNode], now: datetime) -> BreakerStatus:
    """Return the breaker's status after this assessment of the fleet; the same object if nothing changes."""
    known, rules = policy.status.breaker, policy.spec.breaker
    trip = tripped(known, rules, nodes, now)
    if known.state is BreakerState.CLOSED:
        return known if trip is None else _opened(trip, now)
    since = known.since or now
    if known.state is BreakerState.OPEN:
        if now - since < parse_duration(rules.half_open_after):
            return known
        if trip is not None:
            return _opened(trip, now)
        half = {"state": BreakerState.HALF_OPEN, "since": now, "message": Reasons.BREAKER_TRIAL.message}
        return known.model_copy(update={**half, "trial": ""})
    return _opened(trip, now) if trip is not None else _half_open(policy, nodes, now)


def _half_open(policy: GuardPolicy, nodes: Mapping[str, AssessedNode], now: datetime) -> BreakerStatus:
    known, rules = policy.status.breaker, policy.spec.breaker
    since = known.since or now
    closed = _turned(BreakerState.CLOSED, Reasons.BREAKER_CLOSED, Reasons.BREAKER_CLOSED.message, now)
    # A breaker that opened because actions did not help stays half-open until a trial succeeds. Time alone is
    # no reason to permit more actions.
    calm = known.reason != Reasons.BREAKER_WRONG.name
    if known.trial:
        trial = nodes.get(known.trial)
        made = _action_since(trial.status, since) if trial is not None else None
        if made is not None and made.outcome is Outcome.WRONG:
            reason = Reasons.BREAKER_WRONG
            return _opened(Trip(reason, reason.format(count=0, all=1)), now)
        if made is not None and (made.outcome is Outcome.RIGHT or (made.outcome is Outcome.UNKNOWN and calm)):
            # Also close the breaker if the outcome is unknown. The node had failed a sweep but ran no job
            # that could show the outcome, and there is no new reason to open.
            return closed
        pending = made is not None and made.outcome is Outcome.PENDING
        if trial is not None and (pending or (made is None and _on_trial(trial.status))):
            return known
        return known.model_copy(update={"trial": ""})
    waiting = any(_may_be_tried(one, policy.spec.sweeps is not None) for one in nodes.values())
    if calm and not waiting and now - since >= parse_duration(rules.half_open_after):
        return closed
    return known


def _waits(status: NodeHealthStatus) -> bool:
    return status.state in (State.SUSPECT, State.GATED, State.QUARANTINED) and status.confirmed_at is not None


def _may_be_tried(one: AssessedNode, sweeps: bool) -> bool:
    """Return True if the node can be the breaker's trial: it waits for an action, and it has failed a sweep
    or can have a sweep now.

    Other nodes do not count, because the breaker could stay half-open forever while it waits for them.
    """
    ready = one.status.sweep is not None or (sweeps and one.facts.agent_connected and one.facts.idle)
    return _waits(one.status) and (ready or evidence.failures(one.status.evidence) > 0)


def _on_trial(status: NodeHealthStatus) -> bool:
    return _waits(status) or status.state in ACCUSED


def _action_since(status: NodeHealthStatus, since: datetime) -> Action | None:
    last = status.actions[-1] if status.actions else None
    return last if last is not None and last.at >= since else None


def admits(breaker: BreakerStatus, name: str, status: NodeHealthStatus) -> bool:
    """Return True if the breaker permits a quarantine or drain of this node."""
    if breaker.state is BreakerState.CLOSED:
        return True
    if breaker.state is BreakerState.OPEN:
        return False
    return evidence.failures(status.evidence) > 0 and breaker.trial in ("", name)


def tripped(
    known: BreakerStatus, rules: Breaker, nodes: Mapping[str, AssessedNode], now: datetime
) -> Trip | None:
    """Return the reason why the breaker must open; None if there is none."""
    total = size(nodes)
    window = parse_duration(rules.window)
    confirmed = [
        (name, one)
        for name, one in nodes.items()
        if one.status.confirmed_at is not None
        and now - one.status.confirmed_at < window
        and not _counted_before(known, one.status)
        and name != known.trial
    ]
    if len(confirmed) > max(_FEW, total * rules.confirmed_percent / 100):
        message = Reasons.BREAKER_CONFIRMED.format(
            count=len(confirmed), nodes=total, seconds=int(window.total_seconds())
        )
        return Trip(Reasons.BREAKER_CONFIRMED, message)
    suspects = sum(
        1
        for one in nodes.values()
        if one.status.state is State.SUSPECT
        and evidence.unrefuted(one.status.evidence)
        and not (evidence.failures(one.status.evidence) > 1 and _counted_before(known, one.status))
    )
    if suspects > max(_FEW, total * rules.suspect_percent / 100):
        return Trip(Reasons.BREAKER_SUSPECT, Reasons.BREAKER_SUSPECT.format(count=suspects, nodes=total))
    return _shared([one for _, one in confirmed], rules, nodes) or _ineffective(known, rules, nodes)


def _counted_before(known: BreakerStatus, status: NodeHealthStatus) -> bool:
    """Return True if the node was confirmed before the breaker's last change of state.

    Each confirmed node opens the breaker only once. Afterwards, only the budgets and the half-open
    breaker's trials (one node at a time) limit how fast such nodes are drained.
    """
    return known.since is not None and status.confirmed_at is not None and status.confirmed_at <= known.since


def _shared(
    confirmed: Sequence[AssessedNode], rules: Breaker, nodes: Mapping[str, AssessedNode]
) -> Trip | None:
    """Return a trip if most confirmed nodes have the same rack, driver or job. This rack, driver or job
    must belong to less than half of the whole fleet.
    """
    if len(confirmed) < LEAST_SHARED:
        return None
    for what in ("rack", "driver", "job"):
        (name, count), *_ = Counter(mark for one in confirmed for mark in _marks(one, what)).most_common(
            1
        ) or [("", 0)]
        everywhere = sum(1 for one in nodes.values() if name in _marks(one, what))
        if count >= len(confirmed) * rules.shared_percent / 100 and everywhere * 2 < size(nodes):
            message = Reasons.BREAKER_SHARED.format(count=count, all=len(confirmed), what=what, name=name)
            return Trip(Reasons.BREAKER_SHARED, message)
    return None


def _marks(one: AssessedNode, what: str) -> set[str]:
    ref = one.status.node_ref
    if what == "rack":
        return {ref.rack} - {""}
    if what == "driver":
        return {ref.driver} - {""}
    accusing = {item.source for item in one.status.evidence if item.kind is EvidenceKind.ONLINE}
    return accusing | set(one.facts.node.jobs if one.facts.node else ())


def _ineffective(known: BreakerStatus, rules: Breaker, nodes: Mapping[str, AssessedNode]) -> Trip | None:
    if known.state is BreakerState.OPEN:
        return None
    decided = sorted(
        (action.decided, action.outcome is Outcome.RIGHT)
        for one in nodes.values()
        for action in one.status.actions
        if action.outcome in (Outcome.RIGHT, Outcome.WRONG)
        and action.decided is not None
        and (known.since is None or action.decided > known.since)
    )[-MOST_OUTCOMES:]
    good = sum(1 for _, right in decided if right)
    if len(decided) < LEAST_OUTCOMES or good >= len(decided) * rules.success_percent / 100:
        return None
    return Trip(Reasons.BREAKER_WRONG, Reasons.BREAKER_WRONG.format(count=good, all=len(decided)))


def _opened(trip: Trip, now: datetime) -> BreakerStatus:
    return _turned(BreakerState.OPEN, trip.reason, trip.message, now)


def _turned(state: BreakerState, reason: Reason, message: str, now: datetime) -> BreakerStatus:
    return BreakerStatus(state=state, since=now, reason=reason.name, message=message)
