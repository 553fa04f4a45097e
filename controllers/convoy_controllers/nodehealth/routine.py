"""Routine sweeps of idle nodes in service. The nodes most likely to be faulty come first. The sweeps use a
limited share of the nodes' time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from convoy_controllers.guard.sweep import risk
from convoy_controllers.guard.sweep.risk import Event, History
from convoy_controllers.guard.sweep.selection import Candidate, SweepCosts, choose
from convoy_controllers.nodehealth.breaker import AssessedNode
from convoy_controllers.nodehealth.machine import Request, RequestKind
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealthStatus, Outcome, State, StateChange, SweepCause

_DAY = timedelta(days=1)
_STATES = (State.UNVERIFIED, State.QUALIFIED)
_HOUR = 3600.0
_AGAIN = timedelta(days=7)
"""Time after which the last sweep of an unverified node is ignored. A reference to compare the node with
may exist by then, so the node counts as never swept.
"""


def requests(policy: GuardPolicy, nodes: Mapping[str, AssessedNode], now: datetime) -> dict[str, Request]:
    """Return routine sweep requests by node. The nodes most likely to be faulty come first."""
    sweeps = policy.spec.sweeps
    if sweeps is None or not sweeps.time_percent:
        return {}
    idle = [name for name, one in nodes.items() if _may_be(one)]
    if not idle:
        return {}
    costs = SweepCosts()
    spent = costs.minutes * sum(1 for one in nodes.values() if _lately(one.status, now))
    there = sum(1 for one in nodes.values() if one.facts.node is not None)
    budget = there * _DAY.total_seconds() / 60 * sweeps.time_percent / 100 - spent
    past = {name: _history(one.status, now) for name, one in nodes.items()}
    candidates = [Candidate(name, past[name], _age(nodes[name].status, now)) for name in idle]
    request = Request(RequestKind.ROUTINE, cause=SweepCause.ROUTINE)
    return dict.fromkeys(choose(candidates, budget, risk.prior(list(past.values())), costs), request)


def _may_be(one: AssessedNode) -> bool:
    node = one.facts.node
    open_ = one.both(_STATES) and one.status.sweep is None and not one.status.evidence
    return open_ and one.facts.agent_connected and one.facts.idle and node is not None and node.schedulable


def _lately(status: NodeHealthStatus, now: datetime) -> bool:
    return status.sweep is not None or (status.swept is not None and now - status.swept < _DAY)


def _age(status: NodeHealthStatus, now: datetime) -> float | None:
    if status.swept is None or (status.state is State.UNVERIFIED and now - status.swept >= _AGAIN):
        return None
    return (now - status.swept).total_seconds() / _HOUR


def _accused(change: StateChange) -> bool:
    """Return True if the change of state made the node a suspect, and the node had been in service without
    evidence.
    """
    return change.after is State.SUSPECT and change.before in (
        State.UNVERIFIED,
        State.QUALIFIED,
        State.PROBATION,
    )


def _cleared(status: NodeHealthStatus) -> datetime | None:
    """Return the time at which an action against the node was last found to be wrong; None if never."""
    return max(
        (one.decided for one in status.actions if one.outcome is Outcome.WRONG and one.decided), default=None
    )


def _history(status: NodeHealthStatus, now: datetime) -> History:
    resets = [one for one in (status.internal.released_at, _cleared(status)) if one is not None]
    since = max(resets, default=datetime.min.replace(tzinfo=now.tzinfo))
    suspected = sum(1 for change in status.history if change.at > since and _accused(change))
    times = [*(change.at for change in status.history), *status.quarantines]
    hours = (now - min(times, default=now)).total_seconds() / _HOUR
    return History(hours, ((Event.CONFIRMED, len(status.quarantines)), (Event.SUSPECTED, suspected)))
