"""The step of a plan that decides the numbers of replicas of the roles that Convoy scales.

The status holds each number, as `status.roles[].desired`. So a decision takes effect only together with its
record, and nothing but this step changes the number.
"""

from __future__ import annotations

from dataclasses import replace

from convoy_controllers.autoscale.decide import decide as decide_replicas
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


def decide(work: Work) -> Memories:
    """Decide the number of replicas of each role for which a decision is due. Return the memory of each role
    that Convoy scales.
    """
    scaled = {
        role.name: (role, role.scaling) for role in work.observed.job.spec.roles if role.scaling is not None
    }
    memories: dict[str, Memory] = {}
    decided: dict[str, int] = {}
    for name, (role, scaling) in scaled.items():
        if not scaling.decides:
            continue
        memory, newest = _remembered(work, role, scaling), _newest(work, name)
        wait = _wait_seconds(work, role, memory, newest)
        if not wait:
            wait = SYNC_SECONDS
            memory = _synced(work, role, scaling, memory)
            if memory.sync is not None:
                decided[name] = memory.sync.decision.desired
                report.record(work.draft, name, memory.sync.decision)
        memories[name] = memory
        work.waits.append(wait)
    work.observed = work.draft.observed = replace(work.observed, decided=decided)
    report.set_conditions(work.draft, memories, {name for name in memories if _any_ready(work, name)})
    return memories


def _newest(work: Work, role: str) -> ScalingDecision | None:
    """Return the newest recorded change of a role's number of replicas."""
    found = next((one for one in work.observed.job.status.scaling if one.role == role), None)
    return found.decisions[0] if found and found.decisions else None


def _remembered(work: Work, role: ServingRole, scaling: Scaling) -> Memory:
    """Return the memory of a role. It includes a change that was stored, but whose plan was not executed to
    its end.
    """
    memory = work.observed.memory.get(role.name) or Memory(State())
    state, newest = memory.state, _newest(work, role.name)
    if newest is not None and newest.time.timestamp() > memory.at:
        at = newest.time.timestamp()
        state = state.scaled(settings(scaling), newest.from_replicas, newest.to_replicas, at)
    if work.observed.desired(role.name) == 0:
        # Only the autoscaler itself, or an owner who has turned it on since, has set the number to 0.
        state = replace(state, at_zero=True)
    return replace(memory, state=state)


def _wait_seconds(work: Work, role: ServingRole, memory: Memory, newest: ScalingDecision | None) -> float:
    """Return the seconds until the next decision about a role; 0 if it is due. Requests that wait for the
    first replica need a decision at once.
    """
    if work.observed.desired(role.name) == 0 and samples.held_requests(work.observed, role.name):
        return 0.0
    last = max(memory.at, newest.time.timestamp() if newest else 0.0)
    return min(SYNC_SECONDS, max(0.0, last + SYNC_SECONDS - work.now.timestamp()))


def _synced(work: Work, role: ServingRole, scaling: Scaling, memory: Memory) -> Memory:
    """Return the memory of a role after a decision about it."""
    now, wanted = work.now.timestamp(), settings(scaling)
    seen = samples.observed(work.observed, role.name, _groups(work, role.name), wanted.metrics, now)
    decision = decide_replicas(wanted, seen, memory.state, now)
    fresh = {one.type for one in decision.conditions}
    kept = tuple(one for one in memory.conditions if one.type not in fresh)
    return Memory(
        decision.state, (*kept, *decision.conditions), Sync(wanted, seen, memory.state, now, decision)
    )


def _groups(work: Work, role: str) -> list[Group]:
    return work.roles().get(role, [])


def _any_ready(work: Work, role: str) -> bool:
    return any(group.ready for group in _groups(work, role))
