"""TrainingJobs: made, watched and steered."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

from convoy.client import job_actions, output, waiting
from convoy.client.api import Api
from convoy.client.collection import Writable
from convoy.client.errors import ApiError, NotFound, Refused, Unreachable, WaitTimeout
from convoy.client.log_follower import LogFollower, PodLogs
from convoy.client.pod_logs import Notify, log_lines, pod_log, read_in_turn
from convoy.client.watch import watch_object
from convoy_crds.kind import Kind
from convoy_crds.terms import LABEL_INDEX, LABEL_JOB
from convoy_crds.trainingjob import KIND, TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

WAIT_SECONDS = 3600.0
EVENTS_PAGE, EVENT_PAGES = 500, 10
"""Events of one answer, and answers that are read at most."""


class TrainingJobs(Writable[TrainingJob]):
    """The TrainingJobs of a namespace."""

    def __init__(self, api: Api, kind: Kind[TrainingJob] = KIND) -> None:
        super().__init__(api, kind)

    def suspend(self, name: str) -> TrainingJob:
        """Saves the job's state, if it has a place for it, and gives its pods back. Refused when it has ended
        or is suspended.
        """
        self._check(name, "suspend")
        return self._patch(name, {"spec": {"suspend": True}})

    def resume(self, name: str) -> TrainingJob:
        """Lets a suspended job run on. Refused when it is not suspended."""
        self._check(name, "resume")
        return self._patch(name, {"spec": {"suspend": False}})

    def restart(self, name: str) -> TrainingJob:
        """Forms the job's process group anew, in the same pods. Refused when it has ended or is suspended."""
        self._check(name, "restart")
        return self._patch(name, {"spec": {"recovery": {"restartId": secrets.token_hex(4)}}})

    def wait(self, name: str, until: str = "Complete", timeout: float = WAIT_SECONDS) -> TrainingJob:
        """Waits until the job is in the phase `until`, or its condition `until` is True; how it is then.

        `timeout`: seconds, above 0. Raises JobFailed when it fails, JobEnded when it has ended otherwise,
        WaitTimeout when the time is over, NotFound when it is not there or is deleted meanwhile; Unreachable
        when the API server does not answer in all that time.
        """
        waiting.check_target(until)
        if timeout <= 0:
            raise ValueError(f"timeout must be above 0, is {timeout:g}")
        deadline = time.monotonic() + timeout
        job: TrainingJob | None = None
        late = ""
        try:
            with closing(watch_object(self._api, self._kind.plural, name, deadline)) as found:
                for body in found:
                    here = None if body is None else self._read(body)
                    _check_same_job(name, job, here)
                    job = here
                    if job is not None and waiting.has_reached(job, until):
                        return job
        except (Unreachable, ApiError) as error:
            if job is None or isinstance(error, NotFound) or time.monotonic() < deadline:
                raise
            late = f"; since then: {error}"
        raise WaitTimeout(f"{name} is not {until} after {timeout:g} s: {waiting.describe(job)}{late}", job)

    def logs(
        self,
        name: str,
        *,
        rank: int | None = None,
        incarnation: int | None = None,
        follow: bool = False,
        notify: Notify = lambda _: None,
    ) -> Iterator[str]:
        """The lines that the ranks wrote, each with `[incarnation/rank] ` before it; of all ranks and
        incarnations where none is named, and then the launcher's lines too.

        Logs are those of the pods there are; a rank without an incarnation is read where it is now. `follow`
        goes on until the job has ended, or the incarnation where one is named: pods that start or are
        replaced later are read from then on. `notify` takes a sentence at once about each log that cannot be
        read now; the first error is raised after all that can be read. Refused when there is no such rank or
        incarnation, or no pod and none to wait for.
        """
        job = self.get(name)
        if why := output.refusal(job, rank, incarnation):
            raise Refused(why)
        pods = self._pods_of_rank(job, rank, incarnation)
        follow = follow and not output.is_past(job, incarnation)
        if not pods and not (follow and output.expects_pods(job)):
            raise Refused(output.no_pods_reason(job))
        if follow:
            lines: Iterator[str] = LogFollower(
                partial(self._scan_logs, job, rank, incarnation), notify
            ).lines()
        else:
            sources = {pod.metadata.name: partial(log_lines, self._api, pod) for pod in pods}
            lines = read_in_turn(sources, notify)
        return output.select_lines(lines, rank, incarnation)

    def pods(self, name: str) -> list[Any]:
        """The pods of a job in their order, as objects of the package kubernetes."""
        return self._pods(f"{LABEL_JOB}={name}")

    def events(self, uid: str) -> list[Any]:
        """The Events about a job or pod of that uid, in no order, as objects of the package kubernetes."""
        found = self._api.call(
            self._api.core.list_namespaced_event,
            self._api.namespace,
            field_selector=f"involvedObject.uid={uid}",
        )
        return list(found.items)

    def pod_events(self) -> tuple[dict[str, list[Any]], bool]:
        """The Events about the namespace's pods by uid of the pod, in no order, and whether these are all.

        A busy namespace may have more than `EVENTS_PAGE * EVENT_PAGES`; then some are left out.
        """
        found: dict[str, list[Any]] = {}
        further: dict[str, str] = {}
        for _ in range(EVENT_PAGES):
            page = self._api.call(
                self._api.core.list_namespaced_event,
                self._api.namespace,
                field_selector="involvedObject.kind=Pod",
                limit=EVENTS_PAGE,
                **further,
            )
            for event in page.items:
                found.setdefault(event.involved_object.uid, []).append(event)
            if not page.metadata._continue:
                return found, True
            further = {"_continue": page.metadata._continue}
        return found, False

    def _pods(self, selector: str) -> list[Any]:
        found = self._api.call(
            self._api.core.list_namespaced_pod, self._api.namespace, label_selector=selector
        )
        return sorted(found.items, key=lambda pod: int(pod.metadata.labels.get(LABEL_INDEX, 0)))

    def _pods_of_rank(self, job: TrainingJob, rank: int | None, incarnation: int | None) -> list[Any]:
        """The pods to be read; Refused when they are too many."""
        wanted = {slot.pod: str(slot.index) for slot in output.slots_of_rank(job, rank, incarnation)}
        if not wanted:
            return []
        selector = f"{LABEL_JOB}={job.metadata.name}"
        if rank is not None and len(wanted) <= output.MAX_PODS:
            selector += f",{LABEL_INDEX} in ({','.join(wanted.values())})"
        pods = [pod for pod in self._pods(selector) if pod.metadata.name in wanted]
        if rank is None and len(pods) > output.MAX_PODS:
            raise Refused(f"{len(pods)} pods are too many to read at once: choose one rank")
        return pods

    def _scan_logs(self, job: TrainingJob, rank: int | None, incarnation: int | None) -> PodLogs:
        """What is there now to be followed."""
        try:
            here = self.get(job.metadata.name)
        except NotFound:
            return PodLogs((), True)
        if here.metadata.uid != job.metadata.uid or output.is_past(here, incarnation):
            return PodLogs((), True)
        logs = tuple(pod_log(self._api, pod) for pod in self._pods_of_rank(here, rank, incarnation))
        return PodLogs(logs, here.status.phase in TERMINAL)

    def _check(self, name: str, verb: str) -> None:
        if why := job_actions.refusal(self.get(name), verb):
            raise Refused(why)


def _check_same_job(name: str, before: TrainingJob | None, here: TrainingJob | None) -> None:
    """NotFound when the job that was waited for is gone, even if another has its name."""
    if before is None and here is None:
        raise NotFound(f"there is no trainingjob/{name}", 404)
    if here is None or (before is not None and before.metadata.uid != here.metadata.uid):
        raise NotFound(f"trainingjob/{name} was deleted while it was waited for", 404)
