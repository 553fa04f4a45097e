"""A job that has ended: its launchers are let go, its pods kept for their logs, itself deleted in time."""

from __future__ import annotations

from datetime import datetime, timedelta

from convoy_controllers.plan import ENDED_PHASES, DeletePod, Event, Plan, PodView, Shutdown
from convoy_controllers.trainingjob.observed import Observed
from convoy_crds.terms import Reasons
from convoy_crds.trainingjob import Phase, TrainingJobStatus

LET_GO_SECONDS = 30
"""A pod that still runs this long after the end is deleted."""


def closing(
    observed: Observed, pods: list[PodView], exit_code: int, overdue: bool
) -> tuple[tuple[Shutdown, ...], tuple[DeletePod, ...]]:
    """Lets launchers go with `exit_code`; deletes pods that no launcher can end, or that overstay."""
    commands: list[Shutdown] = []
    deletions: list[DeletePod] = []
    for pod in pods:
        if pod.phase in ENDED_PHASES or pod.deleting:
            continue
        view = observed.slots.get(pod.uid)
        if overdue or (view is None and pod.phase == "Pending"):
            deletions.append(DeletePod(pod.name, pod.uid))
        elif view is not None:
            commands.append(Shutdown(view.node, pod.uid, exit_code, "the job has ended"))
    return tuple(commands), tuple(deletions)


def exit_code(status: TrainingJobStatus) -> int:
    """What the launchers of an ended job exit with."""
    return 0 if status.phase is Phase.SUCCEEDED else 1


def plan(observed: Observed, now: datetime) -> Plan:
    """The phase is sticky: nothing that happens to the pods of an ended job changes it."""
    job = observed.job
    ended = job.status.completion_time or now
    ttl = job.spec.ttl_seconds_after_finished
    waits: list[float] = []
    if ttl is not None:
        left = (ended + timedelta(seconds=ttl) - now).total_seconds()
        if left <= 0:
            message = Reasons.EXPIRED.format(seconds=int((now - ended).total_seconds()))
            return Plan(delete_parent=True, events=(Event(Reasons.EXPIRED, message),))
        waits.append(left)
    own = [pod for pod in observed.pods if pod.owner_uid == job.metadata.uid]
    let_go = (ended + timedelta(seconds=LET_GO_SECONDS) - now).total_seconds()
    commands, deletions = closing(observed, own, exit_code(job.status), let_go <= 0)
    if let_go > 0 and any(pod.phase in ("Pending", "Running") for pod in own):
        waits.append(let_go)
    return Plan(commands=commands, delete=deletions, requeue_after=min(waits, default=None))
