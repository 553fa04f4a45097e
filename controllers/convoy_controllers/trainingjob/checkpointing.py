"""What is said of a job's checkpoints: whether it saves, and what that is worth. Pure."""

from __future__ import annotations

from typing import NamedTuple

from convoy_controllers.trainingjob import interval
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.trainingjob.validity import store_not_allowed, unknown_store
from convoy_crds.layout import present
from convoy_crds.terms import ConditionType, Reason, Reasons
from convoy_crds.trainingjob import TrainingJobStatus


class Finding(NamedTuple):
    """Whether the state is saved as the spec wants it, and why not."""

    holds: bool
    reason: Reason
    message: str


def say(draft: Draft) -> None:
    """Sets the condition once an incarnation has formed; trouble that is news is an Event."""
    found = finding(draft.observed, draft.status)
    if found is None:
        if not draft.observed.job.spec.checkpoint.tiers.any:
            draft.drop(ConditionType.CHECKPOINTING)
        return
    old = next((c for c in draft.status.conditions if c.type == ConditionType.CHECKPOINTING), None)
    if found.reason.warning and (old is None or old.reason != found.reason.name):
        draft.event(found.reason, found.message)
    draft.condition(ConditionType.CHECKPOINTING, *found)


def finding(observed: Observed, status: TrainingJobStatus) -> Finding | None:
    """What there is to say; None while nothing has formed."""
    spec = observed.job.spec.checkpoint
    if not spec.tiers.any or not status.membership:
        return None
    views = [view for view in observed.slots.values() if view.incarnation == status.incarnation]
    point = status.checkpoint
    saved = point is not None and point.incarnation == status.incarnation
    unstored: Finding | None = None
    inexact: Finding | None = None
    for view in views:
        if view.trouble is None:
            continue
        kind, why = view.trouble
        if kind == "NO_MEMORY":
            reason = Reasons.NO_CHECKPOINT_MEMORY
            return Finding(False, reason, reason.format(node=view.node, why=why))
        if kind == "INEXACT":
            reason = Reasons.INEXACT_JOURNAL
            inexact = Finding(True, reason, reason.format(node=view.node, why=why))
        elif kind == "NOT_STORED":
            reason = Reasons.NOT_STORED
            unstored = Finding(False, reason, reason.format(name=spec.tiers.store, node=view.node, why=why))
        elif not saved:
            reason = Reasons.CHECKPOINTS_LOST
            return Finding(False, reason, reason.format(incarnation=status.incarnation, why=why))
    if stuck := _store(observed) or unstored or inexact:
        return stuck
    every = interval.words(observed.job, status)
    facts = {"interval": every, "tiers": ", ".join(spec.tiers.names)}
    names = _places(observed, status)
    if spec.tiers.peer and len(names) == 1:
        reason = Reasons.NO_PEER
        return Finding(False, reason, reason.format(node=names[0]))
    if point is None:
        reason = Reasons.NOTHING_SAVED
        return Finding(False, reason, reason.format(interval=every))
    if spec.tiers.peer and names:
        key = spec.tiers.peer.topology_key
        known = {name: observed.nodes[name].labels.get(key, "") for name in names if name in observed.nodes}
        if len(set(known.values())) == 1:
            where = next(iter(known.values())) or "none has the label"
            reason = Reasons.SINGLE_DOMAIN
            return Finding(True, reason, reason.format(key=key, where=where, **facts))
    return Finding(True, Reasons.SAVING, Reasons.SAVING.format(**facts))


def _places(observed: Observed, status: TrainingJobStatus) -> list[str]:
    """Names of the nodes that the incarnation is on; none while one of its pods is gone or on its way.

    By the pods and not by what agents report: while an incarnation begins, one of them is the first.
    """
    members = {slot.pod for slot in present(observed.job.model_copy(update={"status": status}))}
    uid = observed.job.metadata.uid
    placed = {pod.name: pod.node for pod in observed.pods if pod.owner_uid == uid and pod.node}
    return sorted({placed[name] for name in members}) if members <= placed.keys() else []


def _store(observed: Observed) -> Finding | None:
    """Why nothing goes to the job's CheckpointStore; memory is saved to all the same."""
    named = observed.job.spec.checkpoint.tiers.store
    if named is None:
        return None
    if wrong := unknown_store(observed) or store_not_allowed(observed):
        return Finding(False, wrong.reason, wrong.message)
    conditions = observed.store.status.conditions if observed.store else []
    for condition in conditions:
        if condition.type == ConditionType.READY and condition.status == "False":
            reason = Reasons.STORE_NOT_READY
            return Finding(False, reason, reason.format(name=named, why=condition.message))
    return None
