"""Sets the condition StragglerDetected and `status.stragglers` of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import GuardView, SlowView
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_straggler import Proof, Straggler

MOST, MOST_RANKS, MOST_NODES = 16, 64, 16
SAME = 0.05
"""Minimum absolute change of a slowdown or a lost share that updates the status. Without this limit, the
status would be written every second.
"""
NO_TIMINGS_SECONDS, NO_TIMINGS_STEPS = 120.0, 16
"""Seconds and steps without timings after which the condition reports the lack. Timings usually arrive a
second after the third step.
"""
_SHARED = {
    "CommonMode": "all ranks, or all ranks of one kind, became slower together",
    "Imbalance": "the work is distributed unevenly",
    "Input": "all ranks wait for their input",
    "Host": "all ranks spend more time on the host between kernels",
}


def set_condition(draft: Draft) -> None:
    """Set the condition and `status.stragglers` after the ranks of the incarnation have reported steps."""
    status, view = draft.status, draft.observed.guard
    if view is None or not status.formed or view.incarnation != status.incarnation:
        if not status.formed:
            clear(draft)
        elif _lacks_timings(draft):
            kind = ConditionType.STRAGGLER_DETECTED
            draft.condition(kind, None, Reasons.NO_TIMINGS, Reasons.NO_TIMINGS.message)
        return
    slow = sorted(view.slow, key=_order)
    status.stragglers = _kept(status.stragglers, slow[:MOST])
    accused = [one for one in slow if one.ranks]
    if accused:
        first = accused[0]
        reason = Reasons.STRAGGLER if first.proof is Proof.PEERS else Reasons.SUSPECTED_STRAGGLER
        message = _message(draft, accused, reason)
        if first.persistent and not _already_reported(draft, first.proof):
            draft.event(reason, message)
        draft.condition(ConditionType.STRAGGLER_DETECTED, True, reason, message)
    else:
        _set_no_straggler(draft, view)


def clear(draft: Draft) -> None:
    """Remove the condition and the stragglers, because the incarnation that they describe is over."""
    draft.drop(ConditionType.STRAGGLER_DETECTED)
    draft.status.stragglers = []


def _lacks_timings(draft: Draft) -> bool:
    """Return True if all ranks make steps, but none has reported timings. Return False if the incarnation
    has a condition from earlier timings: another operator, which has just started, gets timings soon.
    """
    incarnation, conditions = draft.status.incarnation, draft.status.conditions
    if any(one.type == ConditionType.STRAGGLER_DETECTED for one in conditions):
        return False
    views = [view for view in draft.observed.slots.values() if view.incarnation == incarnation]
    ranks = [rank for view in views for rank in view.ranks]
    return bool(ranks) and all(
        rank.first_step
        and rank.time - rank.first_step >= NO_TIMINGS_SECONDS
        and (rank.step or 0) >= NO_TIMINGS_STEPS
        for rank in ranks
    )


def _set_no_straggler(draft: Draft, view: GuardView) -> None:
    kind = ConditionType.STRAGGLER_DETECTED
    if view.slow:
        what = "; ".join(sorted({_SHARED.get(one.cause, "the cause is unknown") for one in view.slow}))
        draft.condition(kind, False, Reasons.SLOW_TOGETHER, Reasons.SLOW_TOGETHER.format(what=what))
    elif view.layout_unknown:
        draft.condition(kind, None, Reasons.LAYOUT_UNKNOWN, Reasons.LAYOUT_UNKNOWN.message)
    elif view.canary_missed:
        draft.condition(kind, None, Reasons.DETECTOR_DEGRADED, Reasons.DETECTOR_DEGRADED.message)
    elif not view.enough_peers:
        draft.condition(kind, None, Reasons.TOO_FEW_PEERS, Reasons.TOO_FEW_PEERS.message)
    else:
        draft.condition(kind, False, Reasons.NO_STRAGGLER, Reasons.NO_STRAGGLER.message)


def _order(one: SlowView) -> tuple[object, ...]:
    """Return the sort key of a finding: named ranks first, then proof, persistence and slowdown."""
    return (not one.ranks, one.proof is not Proof.PEERS, not one.persistent, -one.slowdown, one.ranks)


def _already_reported(draft: Draft, proof: Proof) -> bool:
    """Return True if the stored status already shows a persistent straggler with this proof."""
    known = draft.observed.job.status.stragglers
    return any(one.persistent and one.ranks and one.proof is proof for one in known)


def _message(draft: Draft, accused: list[SlowView], reason: Reason) -> str:
    first = accused[0]
    known = next(one for one in draft.status.stragglers if one.ranks == list(first.ranks[:MOST_RANKS]))
    more = f" (and {len(accused) - 1} more)" if len(accused) > 1 else ""
    return reason.format(
        who=f"{_ranks(first.ranks)} on {', '.join(first.nodes[:3]) or 'an unknown node'}{more}",
        cause=first.cause,
        slowdown=f"{known.slowdown:.0%}",
        since=known.since_step,
        lasting="persistent" if first.persistent else "recent",
        job=draft.observed.job.metadata.name,
    )


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"ranks {', '.join(map(str, ranks[:4]))}{more}"


def _kept(stored: list[Straggler], found: Iterable[SlowView]) -> list[Straggler]:
    """Return the findings for the status. A value that has hardly changed keeps its stored figure."""
    before = {(one.cause, one.place, *one.ranks): one for one in stored}
    fresh = []
    for one in found:
        ranks = list(one.ranks[:MOST_RANKS])
        slowdown, lost = round(one.slowdown, 2), round(one.lost, 2)
        old = before.get((one.cause, one.place, *ranks))
        if old is not None:
            slowdown = old.slowdown if abs(old.slowdown - slowdown) < SAME else slowdown
            lost = old.lost if abs(old.lost - lost) < SAME else lost
        fresh.append(
            Straggler(
                cause=one.cause,
                place=one.place,
                ranks=ranks,
                nodes=list(one.nodes[:MOST_NODES]),
                since_step=old.since_step if old is not None else one.since,
                slowdown=slowdown,
                lost=lost,
                persistent=one.persistent,
                proof=one.proof,
            )
        )
    return fresh
