"""Plans a job that should serve: handles faults, rolls revisions, forms incarnations, sets conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from convoy_controllers.children import Apply, Delete, delete_pod
from convoy_controllers.placement import gang_state
from convoy_controllers.plan import Plan
from convoy_controllers.servingjob import (
    activation,
    children,
    conditions,
    creation,
    deadnode,
    delivery,
    endpoints,
    gangs,
    model,
    moving,
    peers,
    repair,
    revision,
    rollout,
    states,
    units,
)
from convoy_controllers.servingjob.activation import Activation
from convoy_controllers.servingjob.conditions import Rolling
from convoy_controllers.servingjob.draft import Draft
from convoy_controllers.servingjob.faults import LostNodes
from convoy_controllers.servingjob.groups import Group, groups, strays
from convoy_controllers.servingjob.moving import Departure
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.revision import Revision
from convoy_controllers.servingjob.rollout import Goal, Unit
from convoy_controllers.servingjob.scaling import step as scaling
from convoy_controllers.servingjob.validity import violation
from convoy_controllers.servingjob.work import Work
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob_rollout import ENDPOINT_LAG_SECONDS
from convoy_crds.servingjob_status import MAX_LISTED, RevisionStatus
from convoy_crds.terms import ConditionType


def plan(observed: Observed, now: datetime) -> Plan:
    """Plan one reconcile of a job that should serve."""
    draft = Draft(observed, now)
    status = draft.status
    draft.drop(ConditionType.SUSPENDED)
    wrong = violation(observed)
    chosen = model.choose(observed, draft.now, rolling=_rolls(observed))
    if chosen.model is not None or wrong is None:
        status.model = chosen.model
    target = _target(observed, draft, wrong, chosen)
    own = activation.revision(observed, target.spec) if target else None
    stored = {one.name: one for one in observed.revisions}
    revisions = stored | {one.name: one for one in (target, own) if one is not None}
    lost = deadnode.lost(observed)
    work = Work(
        observed,
        draft,
        now,
        LostNodes(lost, deadnode.replaceable(observed, lost)),
        revisions,
        {
            one.key: endpoints.noted(observed, one, draft.now)
            for one in groups(observed, revisions, lost, now.timestamp())
        },
    )
    work.deletions += [delete_pod(pod.name, pod.uid) for pod in strays(observed, work.groups.values())]
    work.waits += [deadnode.wait_seconds(observed, lost), chosen.wait_seconds]
    memories = scaling.decide(work) if target is not None else observed.memory
    observed = work.observed
    repair.handle_faults(work)
    work.model_faults = delivery.faults(observed, work.groups.values(), revisions)
    conditions.set_valid(draft, wrong)
    conditions.set_model(draft, chosen.problem or _model_fault(work))
    seen: Rolling | None = None
    state: dict[str, list[Unit]] = {}
    activators: Activation | None = None
    if target is not None:
        status.update_revision = target.name
        activators = activation.decide(work, own)
        work.kept = activators.kept
        state = _units(work)
        activation.carry_out(work, activators, own, state.pop(activation.ROLE, []))
        seen = _progress(work, target, state)
        _roll(work, target, state, held=seen.halted or seen.paused)
    repair.form(work)
    peers.carry_out(work)
    creation.create_missing(work)
    _set_conditions(work, seen, chosen, wrong)
    _set_saved_states(work)
    draft.count(work.roles())
    status.packed = gangs.packed(observed, work.groups.values())
    status.internal.groups = [one.record for _, one in sorted(work.groups.items())]
    kept = _kept(work)
    status.revisions = [RevisionStatus(name=one.name, number=one.number) for one in kept[:MAX_LISTED]]
    inspected, later = repair.inspect(work)
    work.waits.append(later)
    return Plan(
        status=draft.stored(),
        status_first=work.status_first,
        children=(
            *deadnode.not_ready(observed.own_pods, lost, now),
            *_deletions(work),
            *(revision.apply(observed.job, one) for one in kept),
            *_others(work, target, state, seen, activators),
            *gangs.applied(work),
            *work.creations,
        ),
        prune=(*children.PRUNED, *gang_state.written(observed.served)),
        events=tuple(draft.events),
        commands=tuple(work.commands),
        inspect=inspected,
        requeue_after=min((wait for wait in work.waits if wait is not None), default=None),
        memory=memories,
    )


def _set_conditions(work: Work, seen: Rolling | None, chosen: model.Choice, wrong: Violation | None) -> None:
    """Set the conditions that depend on the replicas. `seen`: the state of the rollout; None without one."""
    observed, draft, every = work.observed, work.draft, list(work.groups.values())
    held, gang = creation.first_held(work), gangs.finding(work)
    # The reason why a replica does not come back is more useful than the fault that ended it.
    faulty = conditions.gravest(observed, [one for one in every if one.key not in work.held])
    if seen is not None:
        why = held.message if held is not None and faulty is None else seen.why
        conditions.set_progressing(draft, replace(seen, why=why))
    conditions.set_available(draft, work.roles(), _why(work, chosen, wrong, faulty or held or gang))
    conditions.set_degraded(
        draft,
        children.refused(observed)
        or _model_fault(work)
        or faulty
        or (held if held is not None and held.reason.warning else None)
        or gang
        or _moving(work),
    )
    conditions.set_objectives(draft)
    conditions.set_stragglers(draft, every)


def _set_saved_states(work: Work) -> None:
    """Set the condition and the status of the states that replicas have saved."""
    groups = [one for key, one in sorted(work.groups.items()) if key[0] != activation.ROLE]
    work.draft.status.checkpoint = states.saved(work.observed, groups, work.draft.status.checkpoint)
    found = states.finding(work.observed, groups)
    if found is not None:
        work.draft.condition(ConditionType.CHECKPOINTING, *found)
    elif not work.observed.job.spec.checkpoint.tiers.any:
        work.draft.drop(ConditionType.CHECKPOINTING)


def _rolls(observed: Observed) -> bool:
    """Return True if a rollout was in progress at the last plan: it was not halted, and its model was in the
    store.
    """
    status = observed.job.status
    found = {one.type: one for one in status.conditions}
    progressing, ready = found.get(ConditionType.PROGRESSING), found.get(ConditionType.MODEL_READY)
    halted = progressing is not None and progressing.status == "False"
    removed = ready is not None and ready.reason == Reasons.MODEL_NOT_FOUND.name
    return status.current_revision != status.update_revision and not halted and not removed


def _target(
    observed: Observed, draft: Draft, wrong: Violation | None, chosen: model.Choice
) -> Revision | None:
    """Return the revision to which the replicas roll; None if there is none yet.

    While the spec is invalid or its model is missing, it is the last valid revision. A lost status does not
    name it; then it is the newest.
    """
    pinned = observed.job.spec.rollout.revision
    stored = {one.name: one for one in observed.revisions}
    if wrong is not None or (chosen.missing and not pinned):
        newest = max(observed.revisions, key=lambda one: one.number, default=None)
        return stored.get(draft.status.update_revision, newest)
    if pinned:
        return revision.target(stored[pinned].spec, observed.revisions)
    wanted = revision.wanted(observed.job, observed.engines, draft.status.model)
    return revision.target(wanted, observed.revisions)


def _units(work: Work) -> dict[str, list[Unit]]:
    """Return the state of all groups for the rollout, by role."""
    return {
        role: [
            units.unit(
                work.observed,
                one,
                work.now,
                leaves=_departure(work, one),
                no_model=one.key in work.model_faults,
            )
            for one in found
        ]
        for role, found in work.roles().items()
    }


def _departure(work: Work, group: Group) -> Departure | None:
    """Return the node that a replica must leave; None if it may stay."""
    revision = work.revisions.get(group.record.revision)
    role = revision.spec.role(group.record.role) if revision else None
    return moving.departure(work.observed, group, role, protected=_protected(work, group))


def _protected(work: Work, group: Group) -> bool:
    """Return True if the PodDisruptionBudget forbids a replica's eviction, and waiting would not change that:
    the replica is the only one of its role, or another one is down.
    """
    role = group.record.role
    others = [one for one in work.groups.values() if one.record.role == role and one.key != group.key]
    single = not others or work.observed.desired(role) == 1
    return single or any(units.down(one, work.now, no_model=one.key in work.model_faults) for one in others)


def _moving(work: Work) -> Violation | None:
    """Return the first replica that must leave its node; None if there is none."""
    reason = Reasons.REPLICA_MOVING
    for _, one in sorted(work.groups.items()):
        if found := _departure(work, one):
            return Violation(reason, reason.format(replica=one.name, node=found.node, why=found.why))
    return None


def _progress(work: Work, target: Revision, state: Mapping[str, Sequence[Unit]]) -> Rolling:
    """Update the record of the rollout, and return its state."""
    status, spec = work.draft.status, work.observed.job.spec
    names = {role.name for role in target.spec.roles} | set(state)
    done = all(
        rollout.complete(state.get(name, ()), target.name, _desired(work, target, name)) for name in names
    )
    if done:
        status.current_revision = target.name
    every = [one for role in state.values() for one in role]
    active = status.current_revision != target.name or any(one.revision != target.name for one in every)
    record = status.internal.rollout
    seen = units.progress(target.name, state, not active)
    paused = spec.rollout.paused
    fresh = units.record(record, seen, work.draft.now, paused=paused)
    status.internal.rollout = fresh
    until = units.stalled_at(
        fresh, work.observed, work.groups.values(), spec.rollout.progress_deadline_seconds
    )
    expired = until is not None and work.now >= until
    if until is not None and not expired:
        work.waits.append((until - work.now).total_seconds())
    updated = [one for one in work.groups.values() if one.record.revision == target.name]
    return Rolling(
        revision=target.name,
        desired=sum(_desired(work, target, name) for name in names),
        updated=seen.updated_ready,
        old=seen.old,
        active=active,
        paused=paused and active,
        expired=expired,
        failed=_broken(state, target.name),
        serving=sum(one.ready for one in every if one.revision != target.name),
        why=_cause(work, updated),
    )


def _model_fault(work: Work) -> Violation | None:
    """Return a failed delivery of a model: that of the newest revision, if there is one."""
    newest = work.draft.status.update_revision
    groups = [one for key, one in sorted(work.groups.items()) if key in work.model_faults]
    first = min(groups, key=lambda one: one.record.revision != newest, default=None)
    return work.model_faults[first.key] if first else None


def _cause(work: Work, updated: Sequence[Group]) -> str:
    """Return the cause of a delay among the replicas of the target revision; empty if none is known."""
    for one in updated:
        if one.key in work.model_faults:
            return work.model_faults[one.key].message
    waits = delivery.waiting(work.observed, updated, work.revisions)
    if waits and not any(one.record.error for one in updated):
        return waits
    found = conditions.cause(work.observed, updated, work.now)
    return found or endpoints.awaited(updated, work.now)


def _broken(state: Mapping[str, Sequence[Unit]], target: str) -> bool:
    """Return True if in one role a replica of the target revision failed, none is available, and older
    replicas exist. These may be of another role, which the revision lacks.
    """
    if all(one.revision == target for role in state.values() for one in role):
        return False
    fresh = [[one for one in role if one.revision == target] for role in state.values()]
    return any(any(one.failed for one in role) and not any(one.available for one in role) for role in fresh)


def _desired(work: Work, target: Revision, role: str) -> int:
    """Return the desired number of replicas of a role; 0 if the target revision does not have the role. If
    the spec lacks the role, the number is that of the role that took its place, or else it stays.
    """
    job = work.observed.job
    if target.spec.role(role) is None:
        return 0
    name = revision.successor(job, target.spec, role)
    wanted = work.observed.desired(name) if name else len(work.roles().get(role, ()))
    return max(wanted, work.kept) if name == job.spec.serving_role else wanted


def _roll(work: Work, target: Revision, state: Mapping[str, Sequence[Unit]], *, held: bool) -> None:
    """Delete and add groups of all roles as the rollout demands."""
    served = all(
        rollout.complete(state.get(role.name, ()), target.name, _desired(work, target, role.name))
        for role in target.spec.roles
    )
    for name in sorted({role.name for role in target.spec.roles} | set(state)):
        if target.spec.role(name) is None and not served:
            continue  # The replicas of a role that the revision lacks serve until its own roles do.
        found = list(state.get(name, ()))
        limits = rollout.budget(
            work.observed.job.spec.rollout, _desired(work, target, name), found, target.name
        )
        goal = Goal(target.name, _fallback(work, name, found, target), held)
        repair.change(work, name, rollout.changes(found, goal, limits))
    _wait_for_lag(work)


def _fallback(work: Work, role: str, found: Sequence[Unit], target: Revision) -> str:
    """Return the revision for replicas that must not run the target yet; empty if there is none."""
    serving = [one.revision for one in found if one.available and one.revision != target.name]
    candidates = [work.draft.status.current_revision, *sorted(serving)]
    for name in candidates:
        known = work.revisions.get(name)
        if known is not None and known.spec.role(role) is not None:
            return name
    return ""


def _wait_for_lag(work: Work) -> None:
    """Plan again when the next ready group counts as available, the next idle group as down, or when the
    kubelet has noticed the next restart in place.
    """
    now = work.now.timestamp()
    for group in work.groups.values():
        if now < group.noticed:
            work.waits.append(group.noticed - now)
        settles = max(group.ready_since, group.listed or 0.0) + ENDPOINT_LAG_SECONDS
        if group.ready and now < settles:
            # After that time, only a change of the EndpointSlices lets an unlisted group count as available.
            work.waits.append(settles - now)
        elif not group.ready and group.changed and now < group.changed + units.DOWN_SECONDS:
            work.waits.append(group.changed + units.DOWN_SECONDS - now)


def _deletions(work: Work) -> Iterator[Delete]:
    """Yield each deletion once. If a pod is deleted for two reasons, the shorter grace period applies."""
    found: dict[str, Delete] = {}
    for one in work.deletions:
        if one.uid not in found or one.grace_seconds is not None:
            found[one.uid] = one
    yield from found.values()


def _kept(work: Work) -> tuple[Revision, ...]:
    """Return the revisions to keep."""
    status = work.draft.status
    used = {one.record.revision for one in work.groups.values()}
    stored = [one for one in work.revisions.values() if not activation.is_own(one)]
    return revision.kept(stored, used | {status.update_revision, status.current_revision})


def _others(
    work: Work,
    target: Revision | None,
    state: Mapping[str, Sequence[Unit]],
    seen: Rolling | None,
    activators: Activation | None,
) -> Iterator[Apply]:
    """Yield the objects beside the pods; none before the first revision."""
    if target is not None and seen is not None and activators is not None:
        held = seen.halted or seen.paused
        yield from children.applied(work.observed, target.spec, state, activators.front, held=held)
        yield from activation.applied(work.observed.job, activators)


def _why(work: Work, chosen: model.Choice, wrong: Violation | None, faulty: Violation | None) -> str:
    """Return the cause of missing replicas; empty if none is known. `faulty`: a replica that is faulty or
    waits for room; None if there is none.
    """
    if wrong is not None and not work.groups:
        return wrong.message
    if chosen.problem is not None and not work.groups:
        return chosen.problem.message
    every = list(work.groups.values())
    found = _model_fault(work) or faulty
    return found.message if found else delivery.waiting(work.observed, every, work.revisions)
