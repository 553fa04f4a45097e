"""Reports the state of Independent roles in the job's status."""

from __future__ import annotations

from convoy_controllers.trainingjob.independent.records import runs_in
from convoy_controllers.trainingjob.independent.work import Work
from convoy_controllers.workers import waiting
from convoy_crds.layout import Slot
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_independent import Ending

MAX_NAMED = 5
"""Maximum number of pods that a message names."""


def report(work: Work) -> None:
    """Set the counts of the roles and the condition IndependentReady."""
    status = work.draft.status
    running = [slot for slot in work.layout if _runs(work, slot)]
    for role in status.roles:
        if role.name in work.counts:
            records = [one for one in work.records.values() if one.role == role.name]
            counts = work.counts[role.name]
            counts.completed = sum(one.ending is Ending.COMPLETED for one in records)
            counts.given_up = sum(one.ending is Ending.GIVEN_UP for one in records)
            role.ready = sum(slot.role == role.name for slot in running)
            role.independent = counts
    status.independent = f"{len(running)}/{len(work.layout)}"
    holds, reason, message = _condition(work)
    work.draft.condition(ConditionType.INDEPENDENT_READY, holds, reason, message)


def _runs(work: Work, slot: Slot) -> bool:
    record, pod = work.records[slot.role, slot.replica], work.own.get(slot.pod)
    view = work.observed.slots.get(pod.uid) if pod else None
    if pod is None or view is None or pod.deleting or not runs_in(record, pod):
        return False
    return view.incarnation == record.incarnation and any(rank.state == "RUNNING" for rank in view.ranks)


def _condition(work: Work) -> tuple[bool | None, Reason, str]:
    if found := _refused(work) or _given_up(work):
        return False, *found
    if not work.draft.status.formed:
        return None, Reasons.INDEPENDENT_WAITING, Reasons.INDEPENDENT_WAITING.message
    if found := _below_minimum(work) or _not_starting(work):
        return False, *found
    roles = {role.name: role for role in work.draft.status.roles}
    counts = []
    for name in work.roles:
        role = roles[name]
        done = role.independent.completed if role.independent else 0
        more = f" ({done} completed)" if done else ""
        counts.append(f"{role.ready} of {role.desired} pods of role {name} run{more}")
    return True, Reasons.INDEPENDENT_RUNNING, Reasons.INDEPENDENT_RUNNING.format(counts="; ".join(counts))


def _refused(work: Work) -> tuple[Reason, str] | None:
    for slot in work.layout:
        if (found := work.observed.create_errors.get(slot.pod)) is not None:
            where = f"{found.path}: " if found.path else ""
            reason = Reasons.INDEPENDENT_REFUSED
            return reason, reason.format(pod=slot.pod, where=where, why=found.message)
    return None


def _given_up(work: Work) -> tuple[Reason, str] | None:
    """Return reason and message if slots were given up. The message has the fault of the first one."""
    found = [
        (slot.pod, record)
        for slot in work.layout
        if (record := work.records[slot.role, slot.replica]).ending is Ending.GIVEN_UP
    ]
    if not found:
        return None
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    pods = ", ".join(name for name, _ in found[:MAX_NAMED]) + more
    return Reasons.INDEPENDENT_GIVEN_UP, Reasons.INDEPENDENT_GIVEN_UP.format(pods=pods, why=found[0][1].why)


def _not_starting(work: Work) -> tuple[Reason, str] | None:
    """Return reason and message if a pod does not start for a reason that waiting does not heal. A pod
    without a node is no such case: Convoy runs as many pods as find one.
    """
    for name in work.roles:
        layout = [slot for slot in work.layout if slot.role == name and not _ended(work, slot)]
        present = [work.own[slot.pod] for slot in layout if slot.pod in work.own]
        found = (
            waiting.refused(work.observed, layout)
            or waiting.broken(present)
            or waiting.warned(work.observed, present, work.observed.slots)
        )
        if found is not None:
            reason = Reasons.INDEPENDENT_NOT_STARTING
            return reason, reason.format(role=name, why=found.message)
    return None


def _ended(work: Work, slot: Slot) -> bool:
    return work.records[slot.role, slot.replica].ending is not None


def _below_minimum(work: Work) -> tuple[Reason, str] | None:
    specs = work.observed.job.spec.roles
    for role in work.draft.status.roles:
        if role.independent is None:
            continue
        index = next(number for number, spec in enumerate(specs) if spec.name == role.name)
        minimum = specs[index].min_replicas or 0
        if role.ready + role.independent.completed < minimum:
            layout = [slot for slot in work.layout if slot.role == role.name]
            why = waiting.why(work.observed, layout, work.own, work.observed.slots).message
            facts = {"role": role.name, "ready": role.ready, "minimum": minimum, "index": index, "why": why}
            return Reasons.INDEPENDENT_BELOW_MINIMUM, Reasons.INDEPENDENT_BELOW_MINIMUM.format(**facts)
    return None
