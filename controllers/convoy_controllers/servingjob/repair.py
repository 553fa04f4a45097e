"""Repairs replicas: restarts a group after a fault, deletes broken pods, and forms its next incarnation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.plan import Inspect
from convoy_controllers.servingjob import delivery, forming, restarts, states
from convoy_controllers.servingjob.faults import group_fault, wait_for_cause
from convoy_controllers.servingjob.groups import Group, slots, used_numbers
from convoy_controllers.servingjob.rollout import Changes
from convoy_controllers.servingjob.work import Work
from convoy_controllers.views import PodView
from convoy_controllers.workers import waiting
from convoy_controllers.workers.faults import Fault
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.servingjob_status import GroupRecord
from convoy_crds.trainingjob_status import RestartScope

RESEND_SECONDS = 5.0
"""Seconds until commands that no agent has confirmed are sent again."""
STRANDED_SECONDS = 30.0
"""Seconds for which a node's agent must be silent before a pod that has not started there is replaced."""
FUTILE_RESTARTS = 3
"""Number of counted restarts in the window from which on a restart replaces all pods of the group."""


def handle_faults(work: Work) -> None:
    """End the incarnation of each faulty group, and delete the pods that its restart replaces."""
    recovery = work.observed.job.spec.recovery
    for key, known in list(work.groups.items()):
        group, fault = _after_fault(work, known)
        work.groups[key] = group
        work.deletions += _replaced(work, group, fault)
        if group.record.failed:
            rest = restarts.rests_until(group.record, recovery) - work.now
            work.waits.append(rest.total_seconds())
        elif pause := restarts.pause_seconds(group.record, work.now):
            work.waits.append(pause)


def _after_fault(work: Work, group: Group) -> tuple[Group, Fault | None]:
    """Return the group with the fault in its record, and the fault; None if there is none to handle now."""
    recovery, now = work.observed.job.spec.recovery, work.draft.now
    settled = group.settled(work.now)
    record = restarts.refreshed(group.record, settled=settled, recovery=recovery, now=now)
    group = replace(group, record=record)
    fault = group_fault(work.observed, group, work.lost) if not record.failed else None
    if fault is None:
        return group, None
    if wait := wait_for_cause(group, fault, work.now):
        work.waits.append(wait)
        return group, None
    work.draft.event(fault.reason, f"replica {group.name}: {fault.message}")
    after = restarts.after_fault(record, fault, recovery, now)
    return replace(group, record=after, ready=False), fault


def _replaced(work: Work, group: Group, fault: Fault | None) -> list[Delete]:
    """Return the deletions of pods that cannot go on, or that the restart after `fault` replaces."""
    found: list[Delete] = []
    whole = fault is not None and fault.counted and len(group.record.times) >= FUTILE_RESTARTS
    whole = whole or _loses_a_pod(group, fault)
    for one in group.pods.values():
        if one.node in work.lost.replaceable:
            # The kubelet of a lost node cannot confirm the deletion.
            found.append(delete_pod(one.name, one.uid, grace_seconds=0))
        elif one.deleting:
            continue
        elif ended(one) or whole or _replaces(fault, one) or _stranded(work, group, one):
            found.append(delete_pod(one.name, one.uid))
    return found


def _loses_a_pod(group: Group, fault: Fault | None) -> bool:
    """Return True if somebody has just deleted or evicted a pod of a group of several pods.

    Slot 0 would go on serving without that pod, and lose its requests. If it is deleted too, it drains.
    """
    return fault is not None and any(one.deleting and one.name == fault.pod for one in group.pods.values())


def _replaces(fault: Fault | None, one: PodView) -> bool:
    return fault is not None and fault.policy.scope is not RestartScope.PROCESS and fault.pod == one.name


def _stranded(work: Work, group: Group, one: PodView) -> bool:
    """Return True if a pod waits to start on a node whose agent is away, although the node is not lost."""
    node = work.observed.nodes.get(one.node or "")
    if group.record.membership or node is None or node.agent_ready:
        return False
    return node.silent_seconds >= STRANDED_SECONDS


def delete_all(group: Group) -> list[Delete]:
    """Return the deletions of a group's pods. The pods drain before they end."""
    return [delete_pod(one.name, one.uid) for one in group.pods.values() if not one.deleting]


def change(work: Work, role: str, made: Changes) -> None:
    """Delete and add the groups of a role that a rollout demands."""
    for number in made.delete:
        work.deletions += delete_all(work.groups.pop((role, number)))
    used = {key[1] for key in work.groups if key[0] == role} | used_numbers(work.observed, role)
    for wanted in made.create:
        number = next(one for one in range(len(used) + 1) if one not in used)
        used.add(number)
        record = GroupRecord(role=role, number=number, revision=wanted)
        known = work.revisions[wanted].spec.role(role)
        work.groups[role, number] = Group(record, known.group_size if known else 0, {})


def form(work: Work) -> None:
    """Form the groups whose pods are up, and add the commands that agents still need."""
    internal = work.draft.status.internal
    internal.incarnation = forming.seen_incarnation(work.observed)
    deleted = {one.uid for one in work.deletions}
    rings = states.rings(work.observed, work.groups.values(), work.lost.all)
    for key, found in sorted(work.groups.items()):
        if any(one.uid in deleted for one in found.pods.values()):
            continue
        group, known = found, work.revisions.get(found.record.revision)
        orders = (
            delivery.commands(work.observed, found, known) if known and not found.record.membership else ()
        )
        work.commands += orders
        whole = known is not None and delivery.delivered(work.observed, found, known)
        if whole and forming.can_form(work.observed, found, work.lost.all, work.now):
            internal.incarnation += 1
            group = replace(found, record=forming.formed(found, internal.incarnation))
            work.groups[key] = group
            work.status_first = True
        role = known.spec.role(group.record.role) if known else None
        needed = forming.commands(work.observed, group, group.record, role, rings) if role else ()
        work.commands += needed
        work.waits.append(RESEND_SECONDS if needed or orders else None)
    if internal.incarnation == forming.seen_incarnation(work.observed):
        internal.incarnation = work.observed.job.status.internal.incarnation


def inspect(work: Work) -> tuple[Inspect | None, float | None]:
    """Return the late pod whose Events must be read now, and the seconds until the next read."""
    name = work.observed.job.metadata.name
    layout = [
        slot
        for group in work.groups.values()
        if not group.record.membership and not group.record.failed
        for slot in slots(name, group.record, group.size)
    ]
    return waiting.inspect(work.observed, layout, _by_name(work.observed.own_pods), work.now)


def _by_name(pods: Iterable[PodView]) -> dict[str, PodView]:
    return {one.name: one for one in pods}
