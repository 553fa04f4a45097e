"""Disturbs the runs of jobs: orders faults of their pods from the agents, and reads what was measured.

An order is repeated until the agent reports the fault. The agent undoes it by its own timer.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.children import delete_pod
from convoy_controllers.commands import InjectFault, UndoFault
from convoy_controllers.experiment import arms, outcomes, runs
from convoy_controllers.experiment.arms import Run
from convoy_controllers.experiment.deadline import deadline
from convoy_controllers.experiment.draft import Draft
from convoy_controllers.experiment.targets import role_of
from convoy_controllers.faults import FaultPhase
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_crds.experiment_plan import Perturbation
from convoy_crds.experiment_status import FaultRecord, RunStatus
from convoy_crds.perturbations import Backend, PerturbationKind, perturbation_type
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import LABEL_INDEX, LABEL_ROLE

POLL_SECONDS = 2.0
"""Seconds until the next plan while a run is disturbed. No event shows what agents report."""
REFUSED_SECONDS = 60.0
"""Seconds after which a fault that no agent injects makes the run fail."""
MAX_JOBS = 64
"""Maximum number of jobs that an order names."""


def on_pods(draft: Draft, run: Run) -> Perturbation | None:
    """Return the perturbation that disturbs the pods of a run; None if there is none."""
    found = arms.perturbation(draft.spec, run.block)
    if found is None or Backend.AGENT not in perturbation_type(found.kind).backends:
        return None
    return found if run.arm.template is not None else None


def follow(draft: Draft, run: Run, record: RunStatus) -> None:
    """Disturb a run when it is time, and record the measured magnitude."""
    registered = on_pods(draft, run)
    if registered is None or record.ended or not record.uid:
        return
    draft.requeue(POLL_SECONDS)
    _start(draft, record)
    if record.fault is None:
        return
    due = record.fault.started_at + timedelta(seconds=registered.start_seconds)
    if draft.exact < due:
        draft.requeue(max(0.1, (due - draft.exact).total_seconds()))
    elif registered.kind is PerturbationKind.KILL_POD:
        _kill_pods(draft, run, record, registered)
    else:
        _order(draft, run, record, registered)


def finish(draft: Draft, run: Run, record: RunStatus) -> None:
    """Undo the fault of a run that has ended. A run that ended without its fault has failed."""
    if on_pods(draft, run) is None:
        return
    if record.fault is not None and record.fault.node and record.fault.pods:
        draft.command(UndoFault(record.fault.node, record.fault.pods[-1], _fault_id(record)))
    if record.failure is None and not (record.fault and (record.fault.injected or record.fault.before)):
        why = "the run ended before the perturbation was in effect"
        record.figures = []
        runs.fail(draft, record, Reasons.FAULT_NOT_INJECTED, pod=f"of {record.name}", why=why)


def _start(draft: Draft, record: RunStatus) -> None:
    """Record the time of the run's first step."""
    since = draft.observed.first_steps.get(record.load_uid or record.uid)
    if record.fault is None and since is not None:
        record.fault = FaultRecord(started_at=since)


def _order(draft: Draft, run: Run, record: RunStatus, registered: Perturbation) -> None:
    fault = record.fault
    if fault is None:
        return
    pods = [pod for pod in draft.observed.pods.get(record.uid, ()) if pod.node]
    if not fault.pods:
        chosen = _target(pods, registered, run)
        if chosen is None:
            return
        fault.pods, fault.node, fault.ordered_at = [chosen.uid], chosen.node or "", draft.now
    _follow_replacement(draft, run, record, registered, pods)
    state = draft.observed.faults.get(_fault_id(record))
    if state is not None and state.phase is not FaultPhase.REFUSED:
        fault.injected = fault.injected or state.injected > 0
        if state.achieved is not None:
            record.achieved = outcomes.measured(fault.before + state.achieved)
        return
    if fault.injected:
        return  # The pod has left its node, and the fault went with it.
    if (draft.now - (fault.ordered_at or draft.now)).total_seconds() > REFUSED_SECONDS:
        why = state.message if state is not None else f"the agent of node {fault.node} has not reported it"
        name = next((pod.name for pod in pods if pod.uid == fault.pods[-1]), f"of {record.name}")
        runs.fail(draft, record, Reasons.FAULT_NOT_INJECTED, pod=name, why=why)
        return
    end = deadline(draft, record) or draft.exact
    seconds = registered.duration_seconds or max(1.0, (end - draft.exact).total_seconds())
    whole = run.block.cell.magnitude or 0.0
    left = whole - fault.before
    draft.command(
        InjectFault(
            node=fault.node,
            pod_uid=fault.pods[-1],
            id=_fault_id(record),
            owner_uid=record.uid,
            job_uids=_job_uids(draft, record.uid, fault.node),
            kind=registered.kind,
            magnitude=left,
            seconds=seconds * left / whole if fault.before else seconds,
            volume=registered.target.volume or "",
        )
    )


def _fault_id(record: RunStatus) -> str:
    """Return the id of the fault in the pod that is disturbed now: each pod has a fault of its own."""
    number = len(record.fault.pods) if record.fault is not None else 0
    return record.name if number <= 1 else f"{record.name}-{number}"


def _follow_replacement(
    draft: Draft, run: Run, record: RunStatus, registered: Perturbation, pods: list[PodView]
) -> None:
    """Let the kills that are left hit the pod that replaced the disturbed one, when the next one is due.

    A perturbation that is not counted went with its pod: the replacement has another place.
    """
    fault, done = record.fault, record.achieved or 0.0
    if fault is None or not fault.injected or not perturbation_type(registered.kind).whole:
        return
    if any(pod.uid == fault.pods[-1] for pod in pods) or done >= (run.block.cell.magnitude or 0.0):
        return
    due = _due(fault, registered, run.block.cell.magnitude, done)
    chosen = _target(pods, registered, run)
    if chosen is not None and draft.exact >= due:
        fault.pods.append(chosen.uid)
        fault.node, fault.ordered_at = chosen.node or "", draft.now
        fault.before, fault.injected = done, False


def _due(fault: FaultRecord, registered: Perturbation, count: float | None, done: float) -> datetime:
    """Return the time of the next of `count` events, which are spread over the duration. `done`: number of
    events so far.
    """
    pause = (registered.duration_seconds or 0.0) / max(1.0, count or 1.0)
    return fault.started_at + timedelta(seconds=registered.start_seconds + pause * done)


def _job_uids(draft: Draft, target: str, node: str) -> tuple[str, ...]:
    """Return the uids of the experiment's jobs that may have pods on a node: the target's first, then those
    with pods there, and those that have ended last. Pods of a job that has just ended may still be there.
    """
    there = {uid for uid, pods in draft.observed.pods.items() if any(pod.node == node for pod in pods)}
    jobs = sorted(
        draft.observed.jobs.values(), key=lambda job: (job.uid != target, job.uid not in there, job.ended)
    )
    return tuple(job.uid for job in jobs)[:MAX_JOBS]


def _kill_pods(draft: Draft, run: Run, record: RunStatus, registered: Perturbation) -> None:
    """Delete as many pods as the magnitude says, one after the other over the duration. Each one is in the
    status before it is deleted. It counts once it is being deleted or is gone. If it has ended by itself
    before, another one takes its place.
    """
    fault, count = record.fault, int(run.block.cell.magnitude or 0)
    if fault is None:
        return
    known = {pod.uid: pod for pod in draft.observed.pods.get(record.uid, ())}
    alive = {uid: pod for uid, pod in known.items() if not pod.deleting}
    fault.pods = [uid for uid in fault.pods if uid not in alive or alive[uid].phase not in ENDED_PHASES]
    killed = sum(uid not in alive for uid in fault.pods)
    record.achieved, fault.injected = float(killed), killed == count
    for uid in fault.pods:
        if uid in alive:
            draft.delete_pod(delete_pod(alive[uid].name, uid))
    due = _due(fault, registered, count, len(fault.pods))
    fresh = [pod for uid, pod in alive.items() if uid not in fault.pods]
    chosen = _target(fresh, registered, run, len(fault.pods))
    if len(fault.pods) < count and draft.exact >= due and chosen is not None:
        fault.pods.append(chosen.uid)
        draft.delete_pod(delete_pod(chosen.name, chosen.uid))


def _target(pods: list[PodView], registered: Perturbation, run: Run, number: int = 0) -> PodView | None:
    """Return the pod to disturb; None if there is none yet. Without `target.slot`, the block's seed chooses
    it. `number`: pods that the run has lost before.
    """
    role, slot = role_of(registered, run.arm), registered.target.slot
    able = [
        pod
        for pod in sorted(pods, key=lambda pod: pod.name)
        if pod.phase not in ENDED_PHASES
        and not pod.deleting
        and (role is None or pod.labels.get(LABEL_ROLE) == role)
    ]
    if slot is not None:
        return next((pod for pod in able if pod.labels.get(LABEL_INDEX) == str(slot)), None)
    return able[(run.block.seed + number) % len(able)] if able else None
