"""The collection of ServingJobs, with methods to scale, roll, watch and control a job."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from convoy.client import output, rollout, waiting
from convoy.client.api import Api
from convoy.client.awaited import WAIT_SECONDS
from convoy.client.errors import NotFound, Refused
from convoy.client.jobs import Jobs
from convoy.client.log_follower import LogFollower, PodLogs
from convoy.client.pod_logs import Notify, check_number, log_lines, pod_log, read_in_turn
from convoy_crds.kind import Kind
from convoy_crds.servingjob import KIND, ServingJob
from convoy_crds.terms import LABEL_GROUP, LABEL_INDEX, LABEL_ROLE


class ServingJobs(Jobs[ServingJob]):
    """The ServingJobs in the client's namespace, with methods to control and watch them."""

    def __init__(self, api: Api, kind: Kind[ServingJob] = KIND) -> None:
        super().__init__(api, kind)

    def scale(self, name: str, replicas: int) -> ServingJob:
        """Set the number of replicas of the scaled role."""
        return self._patch(name, {"spec": {"replicas": replicas}})

    def suspend(self, name: str) -> ServingJob:
        """Drain and delete all pods. Raises Refused if the job is already suspended."""
        job = self.get(name)
        if job.spec.suspend:
            raise Refused(f"servingjob/{name} is already suspended; to go on, run: convoy resume {name}")
        return self._patch(name, {"spec": {"suspend": True}})

    def resume(self, name: str) -> ServingJob:
        """Start the replicas of a suspended job again. Raises Refused if it is not suspended."""
        if not self.get(name).spec.suspend:
            raise Refused(f"servingjob/{name} is not suspended")
        return self._patch(name, {"spec": {"suspend": False}})

    def pause_rollout(self, name: str) -> ServingJob:
        """Stop the replacement of replicas. Faults are still repaired. Raises Refused if the rollout is
        already paused.
        """
        _check(rollout.pause_refusal(self.get(name)))
        return self._patch(name, {"spec": {"rollout": {"paused": True}}})

    def resume_rollout(self, name: str) -> ServingJob:
        """Continue a paused rollout. Raises Refused if it is not paused."""
        _check(rollout.resume_refusal(self.get(name)))
        return self._patch(name, {"spec": {"rollout": {"paused": False}}})

    def undo_rollout(self, name: str, revision: str | None = None) -> ServingJob:
        """Roll all replicas to a stored revision, by default the one before the present one. Pin it in
        `spec.rollout.revision`.

        Changes of the spec take effect only after `unpin`. Raises Refused if there is no such revision, if
        it already runs, or if the rollout is paused.
        """
        job = self.get(name)
        wanted = revision or rollout.previous_revision(job)
        _check(rollout.undo_refusal(job, wanted))
        return self._patch(name, {"spec": {"rollout": {"revision": wanted}}})

    def unpin(self, name: str) -> ServingJob:
        """Roll all replicas to the revision that the spec defines, after `undo_rollout`. Raises Refused if
        no revision is pinned.
        """
        _check(rollout.unpin_refusal(self.get(name)))
        return self._patch(name, {"spec": {"rollout": {"revision": ""}}})

    def wait(self, name: str, until: str = "Available", timeout: float = WAIT_SECONDS) -> ServingJob:
        """Wait until the condition `until` is True, and return the job in that state.

        `timeout` is in seconds and must be above 0. Raises WaitTimeout, NotFound or Unreachable.
        """
        return self._await(name, timeout, waiting.serving(until))

    def wait_for_rollout(
        self, name: str, timeout: float = WAIT_SECONDS, notify: Notify = lambda _: None
    ) -> ServingJob:
        """Wait until all replicas run the revision of the newest spec and are ready. Return the job in that
        state. `notify` gets a sentence about each change of the rollout.

        `timeout` is in seconds and must be above 0. Raises RolloutHalted, WaitTimeout, NotFound or
        Unreachable.
        """
        return self._await(name, timeout, rollout.completion(notify))

    def logs(
        self,
        name: str,
        *,
        role: str | None = None,
        replica: str | None = None,
        rank: int | None = None,
        follow: bool = False,
        notify: Notify = lambda _: None,
    ) -> Iterator[str]:
        """Yield the lines that the replicas wrote, each with `[incarnation/rank] ` in front.

        `role` is the name of a role, and `replica` that of a replica as in messages, such as `server-0`; None
        selects all.
        `rank` None selects all ranks. If both are None, the launcher's lines are included.

        With `follow`, the iterator ends when the job is deleted. Pods that start later are then read too.
        `notify` gets a sentence about each log that cannot be read at the moment. If logs cannot be read,
        the first error is raised after all other lines were yielded. Raises Refused if there is no pod to
        read and none is expected.
        """
        job = self.get(name)
        if role is not None and replica is not None:
            raise Refused("choose a role or a replica, not both")
        selector = self._selector(name) + (f",{LABEL_ROLE}={role}" if role else _of_replica(replica))
        pods = self._readable(selector)
        if not pods and not (follow and not job.spec.suspend):
            raise Refused(_no_pods_reason(job, replica, role))
        if follow:
            lines: Iterator[str] = LogFollower(partial(self._scan_logs, job, selector), notify).lines()
        else:
            sources = {pod.metadata.name: partial(log_lines, self._api, pod) for pod in pods}
            lines = read_in_turn(sources, notify)
        return output.select_lines(lines, rank, None)

    def _readable(self, selector: str) -> list[Any]:
        pods = self._pods(selector)
        check_number(pods, "choose one replica")
        return pods

    def _scan_logs(self, job: ServingJob, selector: str) -> PodLogs:
        """Return the logs that exist at the moment, and whether the job was deleted."""
        try:
            here = self.get(job.metadata.name)
        except NotFound:
            return PodLogs((), True)
        if here.metadata.uid != job.metadata.uid:
            return PodLogs((), True)
        return PodLogs(tuple(pod_log(self._api, pod) for pod in self._readable(selector)), False)

    @staticmethod
    def _place(pod: Any) -> tuple[Any, ...]:
        """Return the sort key of a pod."""
        labels = pod.metadata.labels
        return labels.get(LABEL_ROLE, ""), int(labels.get(LABEL_GROUP, 0)), int(labels.get(LABEL_INDEX, 0))


def _check(refusal: str | None) -> None:
    if refusal:
        raise Refused(refusal)


def _of_replica(replica: str | None) -> str:
    """Return the part of a label selector that selects the pods of a replica. Raises Refused if the text is
    not the name of a replica.
    """
    if replica is None:
        return ""
    role, _, number = replica.rpartition("-")
    if not role or not number.isdecimal():
        raise Refused(f"{replica!r} is not the name of a replica: write ROLE-NUMBER, such as server-0")
    return f",{LABEL_ROLE}={role},{LABEL_GROUP}={number}"


def _no_pods_reason(job: ServingJob, replica: str | None, role: str | None) -> str:
    """Return the reason why there are no logs."""
    name = job.metadata.name
    if job.spec.suspend:
        return (
            f"{name} is suspended, and logs are deleted with their pods; to go on, run: convoy resume {name}"
        )
    which = f"replica {replica} of {name}" if replica else f"role {role} of {name}" if role else name
    return f"{which} has no pods, and logs are deleted with their pods; `convoy why {name}` explains it"
