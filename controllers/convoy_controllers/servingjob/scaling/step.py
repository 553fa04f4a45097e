"""The step of a plan that decides the numbers of replicas of the roles that Convoy scales.

The status holds each number, as `status.roles[].desired`. So a decision takes effect only together with its
record, and nothing but this step changes the number.
"""

from __future__ import annotations

from dataclasses import replace

from convoy_controllers.autoscale.conditions import Condition
from convoy_controllers.autoscale.decide import decide as decide_replicas
from convoy_controllers.autoscale.decision import Decision, Reason
from convoy_controllers.autoscale.spec import SYNC_SECONDS
from convoy_controllers.autoscale.state import State
from convoy_controllers.servingjob.groups import Group
from convoy_controllers.servingjob.scaling import report, samples
from convoy_controllers.servingjob.scaling.memory import Memories, Memory, Sync
from convoy_controllers.servingjob.scaling.settings import settings
from convoy_controllers.servingjob.work import Work
from convoy_crds.servingjob import ServingRole
from convoy_crds.servingjob_scaling import Scaling
from convoy_crds.servingjob_status import ScalingDecision

METRICS_SECONDS = 60.0
"""Seconds after which the metrics of a ready replica must have values. Agents report again after a start of
the operator, and rates need several reports.
"""


def decide(work: Work) -> Memories:
    """Decide the number of replicas of each role for which a decision is due. Return the memory of each role
    that Convoy scales.
    """
    scaled = {
        role.name: (role, role.scaling) for role in work.observed.job.spec.roles if role.scaling is not None
    }
    memories: dict[str, Memory] = {}
    decided: dict[str, int] = {}
    work.observed = replace(work.observed, decided=(unrecorded := _unrecorded(work)))
    for name, (role, scaling) in scaled.items():
        if not scaling.decides:
            continue
        memory = work.observed.memory.get(name) or Memory(State(), work.now.timestamp())
        wait = _wait_seconds(work, role, scaling, memory)
        if not wait:
            wait = SYNC_SECONDS
            memory = _synced(work, role, scaling, memory)
            if memory.sync is not None:
                decided[name] = memory.sync.decision.desired
                report.record(work.draft, name, memory.sync.decision)
                # Without its record, the next plan would undo what this one has created or deleted.
                work.status_first |= memory.sync.decision.changes
        memories[name] = memory
        work.waits.append(wait)
    work.observed = work.draft.observed = replace(work.observed, decided={**unrecorded, **decided})
    starting = {name for name, memory in memories.items() if _starts(work, scaled[name][0], memory)}
    report.set_conditions(work.draft, memories, starting)
    return memories


def _unrecorded(work: Work) -> dict[str, int]:
    """Return the number of replicas of each role for which neither the spec nor the status has one. A role of
    a job whose status was lost keeps its replicas, and a role that was renamed keeps its number.
    """
    job = work.observed.job
    recorded = {one.name: one.desired for one in job.status.roles}
    names = [role.name for role in job.spec.roles if role.name not in recorded]
    before = [number for name, number in recorded.items() if job.spec.role(name) is None]
    numbers = dict(zip(names, before, strict=False))
    return {
        name: max(job.desired(name), len(_groups(work, name)), numbers.get(name, 0))
        for name in names
        if job.spec.fixed(name) is None
    }


def _newest(work: Work, role: str) -> ScalingDecision | None:
    """Return the newest recorded change of a role's number of replicas."""
    found = next((one for one in work.observed.job.status.scaling if one.role == role), None)
    return found.decisions[0] if found and found.decisions else None


def _state(work: Work, role: ServingRole, scaling: Scaling, memory: Memory) -> State:
    """Return the state from which the next decision starts. It includes a change that was stored, but whose
    plan was not executed to its end.
    """
    state, newest = memory.state, _newest(work, role.name)
    if newest is not None and newest.time.timestamp() > memory.at:
        at = newest.time.timestamp()
        state = state.scaled(settings(scaling), newest.from_replicas, newest.to_replicas, at)
    if work.observed.desired(role.name) == 0:
        # Only the autoscaler itself, or an owner who has turned it on since, has set the number to 0.
        state = replace(state, at_zero=True)
    return state


def _wait_seconds(work: Work, role: ServingRole, scaling: Scaling, memory: Memory) -> float:
    """Return the seconds until the next decision about a role; 0 if it is due. Requests that wait for the
    first replica need a decision at once. So does a minimum that has been raised above 0: without a number
    above 0, the Service would leave the activators before a replica is ready.
    """
    if work.observed.desired(role.name) == 0 and (
        scaling.min_replicas or samples.held_requests(work.observed, role.name)
    ):
        return 0.0
    newest = _newest(work, role.name)
    last = max(memory.at, newest.time.timestamp() if newest else 0.0)
    return min(SYNC_SECONDS, max(0.0, last + SYNC_SECONDS - work.now.timestamp()))


def _synced(work: Work, role: ServingRole, scaling: Scaling, memory: Memory) -> Memory:
    """Return the memory of a role after a decision about it."""
    now, wanted = work.now.timestamp(), settings(scaling)
    seen = samples.observed(work.observed, role.name, _groups(work, role.name), wanted.metrics, now)
    state = _state(work, role, scaling, memory)
    decision = decide_replicas(wanted, seen, state, now)
    sync = Sync(wanted, seen, state, now, decision)
    return replace(
        memory, state=decision.state, conditions=_conditions(work, role, memory, decision), sync=sync
    )


def _conditions(work: Work, role: ServingRole, memory: Memory, decision: Decision) -> tuple[Condition, ...]:
    """Return the newest condition of each type. Metrics that fail shortly after a start change none."""
    if decision.reason is Reason.METRICS_FAILED and work.now.timestamp() < _metrics_from(work, role, memory):
        return memory.conditions
    fresh = {one.type for one in decision.conditions}
    return (*(one for one in memory.conditions if one.type not in fresh), *decision.conditions)


def _metrics_from(work: Work, role: ServingRole, memory: Memory) -> float:
    """Return the Unix seconds from which on missing metrics of a role are a fault."""
    ready = [group.ready_since for group in _groups(work, role.name) if group.ready]
    return max(memory.since, min(ready, default=0.0)) + METRICS_SECONDS


def _starts(work: Work, role: ServingRole, memory: Memory) -> bool:
    """Return True if no replica of a role has been ready for so long that its metrics must have values."""
    ready = any(group.ready for group in _groups(work, role.name))
    return not ready or work.now.timestamp() < _metrics_from(work, role, memory)


def _groups(work: Work, role: str) -> list[Group]:
    return work.roles().get(role, [])
