"""The gangs of replicas: each replica of several pods starts as a whole, near each other.

Backend and PodGroup of a replica are stored in its record when its first pods are created. So the API of
another backend causes no rollout, and a pod that replaces another joins the gang of those that stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from convoy_controllers.children import Apply, owner_reference
from convoy_controllers.placement import gang_state
from convoy_controllers.placement.gang_choice import (
    BY_NAME,
    GangRole,
    GangSpec,
    choose,
    gang,
    group_name,
    missing_api,
    queue_of,
)
from convoy_controllers.placement.gang_state import GangReport
from convoy_controllers.placement.gangs.backend import GangGroup
from convoy_controllers.placement.topology import topology
from convoy_controllers.placement.waiting import WAITING_REASONS
from convoy_controllers.servingjob.groups import Group
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.revision import Revision
from convoy_controllers.servingjob.work import Work
from convoy_controllers.views import PodView
from convoy_controllers.workers.violation import Violation
from convoy_crds.servingjob import KIND
from convoy_crds.servingjob_status import GangRecord


def select(
    work: Work, group: Group, revision: Revision, staying: Collection[PodView]
) -> tuple[Group, Violation | None]:
    """Return the group with the gang for its missing pods in the record, and the reason why they must not be
    created; None if they may. `staying`: the pods of the group that stay.
    """
    record, before, observed = group.record, group.record.gang or GangRecord(), work.observed
    if group.size < 2:
        return group, None
    if staying:
        backend = BY_NAME.get(before.backend)
        return group, missing_api(backend, observed.served) if backend else None
    wanted, metadata = _spec(work, group, revision), observed.job.metadata
    backend, wrong = choose(wanted, observed.served)
    if backend is None:
        kept = None if wrong is None else record.gang
        return replace(group, record=record.model_copy(update={"gang": kept})), wrong
    start = [metadata.uid, *group.key, record.revision, record.incarnation]
    name = group_name(wanted, metadata.name, f"-{record.role}-{record.number}", start)
    used = gang_state.in_use(gang_state.find(observed.gang_objects, before.name), group.pods.values())
    chosen = GangRecord(
        backend=backend.name,
        name=name.after(before.name, used=used),
        topology_key=wanted.topology_key,
    )
    return replace(group, record=record.model_copy(update={"gang": chosen})), None


def gang_of(work: Work, group: Group, revision: Revision | None) -> GangGroup | None:
    """Return a replica's gang with its backend, according to its record; None if its pods start alone."""
    stored, metadata = group.record.gang, work.observed.job.metadata
    backend = BY_NAME.get(stored.backend) if stored is not None else None
    if stored is None or backend is None or not stored.name or revision is None:
        return None
    owner = owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid)
    raw = gang_state.find(work.observed.gang_objects, stored.name) if backend.queues else None
    wanted = gang_state.with_kept_queue(_spec(work, group, revision), backend, raw)
    return GangGroup(backend, gang(wanted, stored.name, owner, stored.topology_key))


def applied(work: Work) -> Iterator[Apply]:
    """Yield the PodGroups of all replicas, except those that would only take room from others of their
    queue.
    """
    for group, found in _gangs(work):
        held, pods = work.held.get(group.key), gang_state.live(group.pods.values())
        if found.backend.queues and not pods and held is not None and held.reason.name in WAITING_REASONS:
            continue
        for one in gang_state.apply(found, work.observed.served):
            # Other replicas and the Service do not depend on it.
            yield replace(one, required=False)


def finding(work: Work) -> Violation | None:
    """Return the first replica whose gang needs attention; None if there is none."""
    found, objects = None, {one.name: one.raw for one in work.observed.gang_objects}
    for group, known in _gangs(work):
        state = _report(work, group, known, objects.get(known.gang.name))
        work.waits.append(state.wait_seconds)
        if found is None and state.warning is not None:
            found = replace(state.warning, message=f"replica {group.name}: {state.message}")
    return found


def packed(observed: Observed, groups: Iterable[Group]) -> str:
    """Return how many replicas of several pods run in one domain of the first topology key, such as `3/4`;
    empty without topology keys.
    """
    keys = observed.job.spec.placement.topology_keys
    if not keys:
        return ""
    found = topology(keys, {name: node.labels for name, node in observed.nodes.items()})
    placed = [
        {found.domain(pod.node or "", 0) for pod in one.pods.values()}
        for one in groups
        if one.size > 1 and len(one.pods) == one.size and all(pod.node for pod in one.pods.values())
    ]
    near = sum(len(domains) == 1 and all(next(iter(domains))) for domains in placed)
    return f"{near}/{len(placed)}" if placed else ""


def _gangs(work: Work) -> Iterator[tuple[Group, GangGroup]]:
    """Yield the replicas with a PodGroup, and their gangs."""
    for _, group in sorted(work.groups.items()):
        found = gang_of(work, group, work.revisions.get(group.record.revision))
        if found is not None:
            yield group, found


def _report(work: Work, group: Group, found: GangGroup, raw: Mapping[str, Any] | None) -> GangReport:
    revision = work.revisions[group.record.revision]
    return gang_state.report(
        found,
        raw,
        gang_state.live(group.pods.values()),
        group.size,
        scheduler=_spec(work, group, revision).scheduler(found.backend),
        now=work.now,
    )


def _spec(work: Work, group: Group, revision: Revision) -> GangSpec:
    """Return the pods of a replica, which start together."""
    family = (group.record.role, revision.name)
    if family not in work.gang_specs:
        role = revision.spec.role(group.record.role)
        spec = role.template.spec.to_dict() if role and role.template else {}
        roles = [GangRole(group.record.role, spec, group.size, group.size)]
        job = work.observed.job
        queue = queue_of(job.metadata.annotations)
        work.gang_specs[family] = GangSpec(job.spec.placement, roles, queue)
    return work.gang_specs[family]
