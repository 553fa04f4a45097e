"""The collection of TrainingJobs, with methods to watch and control a job."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any

from convoy.client import job_actions, output, traces, waiting
from convoy.client.api import Api
from convoy.client.awaited import WAIT_SECONDS
from convoy.client.errors import NotFound, Refused
from convoy.client.jobs import Jobs
from convoy.client.log_follower import LogFollower, PodLogs
from convoy.client.pod_logs import MAX_PODS, Notify, check_number, log_lines, pod_log, read_in_turn
from convoy.client.traces import TraceRequest
from convoy_crds.kind import Kind
from convoy_crds.terms import LABEL_INDEX
from convoy_crds.trainingjob import KIND, TrainingJob
from convoy_crds.trainingjob_status import TERMINAL
from convoy_crds.trainingjob_trace import TraceStatus


class TrainingJobs(Jobs[TrainingJob]):
    """The TrainingJobs in the client's namespace, with methods to control and watch them."""

    def __init__(self, api: Api, kind: Kind[TrainingJob] = KIND) -> None:
        super().__init__(api, kind)

    def suspend(self, name: str) -> TrainingJob:
        """Save the job's state, if it has checkpoint tiers, and delete its pods.

        Raises Refused if the job has ended or is already suspended.
        """
        self._check(name, "suspend")
        return self._patch(name, {"spec": {"suspend": True}})

    def resume(self, name: str) -> TrainingJob:
        """Continue a suspended job. Raises Refused if it is not suspended."""
        self._check(name, "resume")
        return self._patch(name, {"spec": {"suspend": False}})

    def restart(self, name: str) -> TrainingJob:
        """Restart all ranks as a new incarnation, in the same pods. Raises Refused if the job has ended or
        is suspended.
        """
        self._check(name, "restart")
        return self._patch(name, {"spec": {"recovery": {"restartId": secrets.token_hex(4)}}})

    def wait(self, name: str, until: str = "Complete", timeout: float = WAIT_SECONDS) -> TrainingJob:
        """Wait until the job has the phase `until`, or until its condition `until` is True. Return the job
        in that state.

        `timeout` is in seconds and must be above 0. Raises:

        - JobFailed if the job fails, and JobEnded if the job ends in another way;
        - WaitTimeout if the job is not in that state before the timeout;
        - NotFound if the job does not exist or is deleted;
        - Unreachable if the API server does not respond before the timeout.
        """
        return self._await(name, timeout, waiting.training(until))

    def record_trace(
        self,
        name: str,
        request: TraceRequest,
        timeout: float = WAIT_SECONDS,
        notify: Notify = lambda _: None,
    ) -> TraceStatus:
        """Let the job record some steps without a restart, and wait until the traces are in its store. Return
        the state of the recording, which may have failed. `notify` gets a sentence about each change.

        `timeout` is in seconds and must be above 0. Raises Refused if the job cannot record, WaitTimeout,
        NotFound or Unreachable.
        """
        if why := traces.refusal(self.get(name)):
            raise Refused(why)
        request_id = secrets.token_hex(4)
        self._patch(name, request.patch(request_id))
        job = self._await(name, timeout, traces.traced(request_id, notify))
        return job.status.trace or TraceStatus()

    def logs(
        self,
        name: str,
        *,
        rank: int | None = None,
        incarnation: int | None = None,
        role: str | None = None,
        replica: str | None = None,
        follow: bool = False,
        notify: Notify = lambda _: None,
    ) -> Iterator[str]:
        """Yield the lines that the ranks wrote, each with `[incarnation/rank] ` in front.

        `rank` None selects all ranks, and `incarnation` None selects all incarnations. If both are None,
        the launcher's lines are included, without that prefix. Only the logs of existing pods can be read.
        If only `rank` is given, only the pod that currently has the rank is read.

        `role` selects the pods of one role. `replica` selects one pod: its name, or role and number within
        the role, such as `spot-0`. The pods of Independent roles are outside the group, so a rank or an
        incarnation selects none of their lines. Each of their lines begins with `[role-number] `.

        With `follow`, the iterator ends when the job ends, or when the given incarnation ends. Pods that
        start later or replace other pods are then read too. `notify` gets a sentence about each log that
        cannot be read at the moment. If logs cannot be read, the first error is raised after all other
        lines were yielded.

        Raises Refused if the job has no such rank, incarnation or pod, or if there is no pod to read and none
        is expected.
        """
        job, wanted = self.get(name), output.Selection(rank, incarnation, role, replica)
        why = output.refusal(job, rank, incarnation) or output.refusal_of_pods(job, wanted)
        if why:
            raise Refused(why)
        pods = self._pods_to_read(job, wanted)
        follow = follow and not output.is_past(job, incarnation)
        if not pods and not (follow and output.expects_pods(job)):
            raise Refused(output.no_pods_reason(job, wanted))
        if follow:
            lines: Iterator[str] = LogFollower(partial(self._scan_logs, job, wanted), notify).lines()
        else:
            sources = {
                pod.metadata.name: partial(log_lines, self._api, pod, prefix=prefix) for pod, prefix in pods
            }
            lines = read_in_turn(sources, notify)
        return output.select_lines(lines, rank, incarnation)

    def _pods_to_read(self, job: TrainingJob, wanted: output.Selection) -> list[tuple[Any, str]]:
        """Return the pods that may have written wanted lines, each with the prefix of its lines. Raises
        Refused if there are too many pods to read at once.
        """
        slots = {slot.pod: slot for slot in output.slots_to_read(job, wanted)}
        if not slots:
            return []
        selector = self._selector(job.metadata.name)
        one = wanted.rank is not None or wanted.replica is not None
        if one and len(slots) <= MAX_PODS:
            selector += f",{LABEL_INDEX} in ({','.join(str(slot.index) for slot in slots.values())})"
        pods = [pod for pod in self._pods(selector) if pod.metadata.name in slots]
        if not one:
            check_number(pods, "choose one rank, role or replica")
        return [(pod, output.prefix_of(slots[pod.metadata.name])) for pod in pods]

    def _scan_logs(self, job: TrainingJob, wanted: output.Selection) -> PodLogs:
        """Return the logs that exist at the moment, and whether the job, or the given incarnation, has
        ended.
        """
        try:
            here = self.get(job.metadata.name)
        except NotFound:
            return PodLogs((), True)
        if here.metadata.uid != job.metadata.uid or output.is_past(here, wanted.incarnation):
            return PodLogs((), True)
        logs = tuple(pod_log(self._api, pod, prefix) for pod, prefix in self._pods_to_read(here, wanted))
        return PodLogs(logs, here.status.phase in TERMINAL)

    def _check(self, name: str, verb: str) -> None:
        if why := job_actions.refusal(self.get(name), verb):
            raise Refused(why)
