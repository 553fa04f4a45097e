"""Ranks that are equally slow on every node. The cause is the ranks' own work, not a node.

Rank 0 may also write logs, or a program may distribute work unevenly. Such a rank is slower than its peers
on every node, which a swap shows. Without this module, the rank's slowness would be blamed on one node
after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace, Slow, is_later_incarnation, is_slow_again
from convoy_crds.nodehealth import Action, NodeHealth, Outcome, PaceRecord

KEPT = timedelta(days=7)
"""Time for which ranks that are slow on every node are remembered. Afterwards their slowness counts against
a node again.
"""


def without_followers(
    suspicions: Mapping[str, tuple[Suspicion, ...]],
    healths: Iterable[NodeHealth],
    paces: Mapping[str, JobPace],
    now: datetime,
) -> dict[str, tuple[Suspicion, ...]]:
    """Return the suspicions by node, without those against swapped ranks that are as slow on their new node
    as on the old one.

    Once the outcome of the swap is Wrong, the slowness of these ranks counts against no node for the time
    KEPT.
    """
    swapped = [
        (health.status.node_ref.name, pace, action.outcome)
        for health in healths
        for action in health.status.actions
        for pace in action.paces
        if _remembered(action, pace, now)
    ]

    def has_followed(node: str, one: Suspicion) -> bool:
        return any(
            _same(one, pace, paces.get(one.job)) and (outcome is Outcome.WRONG or node != left)
            for left, pace, outcome in swapped
        )

    kept = {
        node: tuple(one for one in several if not has_followed(node, one))
        for node, several in suspicions.items()
    }
    return {node: several for node, several in kept.items() if several}


def _remembered(action: Action, pace: PaceRecord, now: datetime) -> bool:
    if action.outcome is Outcome.WRONG and action.decided is not None:
        return pace.followed and now - action.decided < KEPT
    return action.outcome is Outcome.PENDING


def _same(one: Suspicion, swapped: PaceRecord, now: JobPace | None) -> bool:
    if one.job != swapped.job or now is None or not is_later_incarnation(swapped, now):
        return False
    return is_slow_again(swapped, Slow(frozenset(one.ranks), one.cause, one.gain))
