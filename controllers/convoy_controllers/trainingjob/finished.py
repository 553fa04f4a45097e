"""Cleans up after a job that has ended: ends its launchers, keeps its pods for their logs, deletes the job
after its TTL.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from convoy_controllers.children import Child, Delete, EndPod, Event, delete_pod
from convoy_controllers.commands import Shutdown
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import gang
from convoy_controllers.trainingjob.independent.drain import drained
from convoy_controllers.trainingjob.independent.scope import is_independent
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import ENDED_PHASES, PodView
from convoy_controllers.workers.pod_ends import overdue
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_status import Phase, TrainingJobStatus

LAUNCHER_EXIT_SECONDS = 30
"""Seconds from the job's end until its launchers must have ended. A pod whose launcher still runs after
this time is deleted. If only other containers of the pod still run, they are ended.
"""
SIDECAR_EXIT_SECONDS = 600
"""Seconds from the job's end until all containers must have ended. A pod with a container that still runs
after this time is deleted.
"""


@dataclass(slots=True)
class Closing:
    """The changes that end the pods of an ended job."""

    commands: list[Shutdown] = field(default_factory=list)
    end: list[EndPod] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)

    @property
    def children(self) -> tuple[Child, ...]:
        """Return the children of the plan: first the deletions, then the pods whose containers must be
        ended.
        """
        return (*self.delete, *self.end)


def closing(
    observed: Observed, pods: Iterable[PodView], exit_code: int, now: datetime, past: float = 0.0
) -> Closing:
    """Return the changes that end the pods. `past` are the seconds since the job's end.

    A connected launcher is told to exit with `exit_code`. A sidecar may run until LAUNCHER_EXIT_SECONDS
    after the job's end, so that it can send the last output of the ranks. Then the kubelet ends the
    sidecar. A pod that has not started is deleted. So is a pod whose launcher runs longer than
    LAUNCHER_EXIT_SECONDS, or whose sidecar runs longer than SIDECAR_EXIT_SECONDS.
    """
    found = Closing()
    for pod in pods:
        if pod.phase in ENDED_PHASES or pod.deleting:
            continue
        view, over = observed.slots.get(pod.uid), pod.exit_code is not None
        if past >= (SIDECAR_EXIT_SECONDS if over else LAUNCHER_EXIT_SECONDS):
            found.delete.append(delete_pod(pod.name, pod.uid))
        elif over and past >= LAUNCHER_EXIT_SECONDS and not overdue(pod, now.timestamp()):
            found.end.append(EndPod(pod.name, pod.uid))
        elif not over and view is not None:
            found.commands.append(Shutdown(view.node, pod.uid, exit_code, "the job has ended"))
        elif not over and pod.phase == "Pending":
            found.delete.append(delete_pod(pod.name, pod.uid))
    return found


def exit_code(status: TrainingJobStatus) -> int:
    """Return the exit code for the launchers of an ended job."""
    return 0 if status.phase is Phase.SUCCEEDED else 1


def plan(observed: Observed, now: datetime) -> Plan:
    """Plan one reconcile of an ended job. Its phase is final, whatever happens to its pods."""
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
    past = (now - ended).total_seconds()
    group = [pod for pod in own if not is_independent(job, pod)]
    found = closing(observed, group, exit_code(job.status), now, past)
    found.delete += drained(observed, [pod for pod in own if is_independent(job, pod)])
    if any(pod.phase in ("Pending", "Running") for pod in own):
        waits += [limit - past for limit in (LAUNCHER_EXIT_SECONDS, SIDECAR_EXIT_SECONDS) if limit > past][:1]
    over = all(pod.phase in ENDED_PHASES for pod in own)
    return Plan(
        commands=tuple(found.commands),
        children=found.children,
        # A scheduler with queues keeps room for a PodGroup, even if its pods are over.
        prune=gang.written(observed) if over else (),
        requeue_after=min(waits, default=None),
    )
