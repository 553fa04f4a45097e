"""The base class of collections of jobs: their pods and Events, and the wait for a state of a job."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, TypeVar

from convoy.client.collection import Writable
from convoy.client.errors import ApiError, NotFound, Unreachable, WaitTimeout
from convoy.client.waiting import Goal
from convoy.client.watch import watch_object
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import LABEL_INDEX, LABEL_JOB, LABEL_KIND
from convoy_crds.trainingjob import TrainingJob

WAIT_SECONDS = 3600.0
"""Default timeout of waits, in seconds."""
EVENTS_PAGE = 500
"""Maximum number of Events in one response of the API server."""
EVENT_PAGES = 10
"""Maximum number of responses that `pod_events` reads."""

J = TypeVar("J", TrainingJob, ServingJob)
"""The model of a kind of jobs."""


class Jobs(Writable[J]):
    """The jobs of one kind in the client's namespace, with their pods and Events."""

    def pods(self, name: str) -> list[Any]:
        """Return the pods of a job as objects of the package kubernetes, in the order of their
        ranks.
        """
        return self._pods(self._selector(name))

    def events(self, uid: str) -> list[Any]:
        """Return the Events of the job or pod with that uid, in no particular order, as objects of the
        package kubernetes.
        """
        found = self._api.call(
            self._api.core.list_namespaced_event,
            self._api.namespace,
            field_selector=f"involvedObject.uid={uid}",
        )
        return list(found.items)

    def pod_events(self) -> tuple[dict[str, list[Any]], bool]:
        """Return the Events of all pods in the namespace by pod uid, and True if the Events are complete.
        The Events of a pod have no particular order.

        If there are more than `EVENTS_PAGE * EVENT_PAGES` Events, the further Events are left out.
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

    def _selector(self, name: str) -> str:
        """Return the label selector of a job's pods. A job of the other kind may have the same name."""
        return f"{LABEL_JOB}={name},{LABEL_KIND}={self._kind.name}"

    def _pods(self, selector: str) -> list[Any]:
        found = self._api.call(
            self._api.core.list_namespaced_pod, self._api.namespace, label_selector=selector
        )
        return sorted(found.items, key=self._place)

    @staticmethod
    def _place(pod: Any) -> tuple[Any, ...]:
        """Return the sort key of a pod."""
        return (int(pod.metadata.labels.get(LABEL_INDEX, 0)),)

    def _await(self, name: str, timeout: float, goal: Goal[J]) -> J:
        """Watch a job until it has reached the goal, and return it. Raises WaitTimeout after `timeout`
        seconds.
        """
        if timeout <= 0:
            raise ValueError(f"timeout must be above 0, is {timeout:g}")
        deadline = time.monotonic() + timeout
        job: J | None = None
        late = ""
        try:
            with closing(watch_object(self._api, self._kind.plural, name, deadline)) as found:
                for body in found:
                    here = None if body is None else self._read(body)
                    job = self._same_job(name, job, here)
                    if goal.reached(job):
                        return job
        except (Unreachable, ApiError) as error:
            if job is None or isinstance(error, NotFound) or time.monotonic() < deadline:
                raise
            late = f"; last error: {error}"
        state = "the job could not be read" if job is None else goal.describe(job)
        raise WaitTimeout(f"{name} is not {goal.name} after {timeout:g} s: {state}{late}", job)

    def _same_job(self, name: str, before: J | None, here: J | None) -> J:
        """Return the job as it is now. Raises NotFound if it does not exist, or if another job has its
        name.
        """
        full = f"{self._kind.name.lower()}/{name}"
        if before is None and here is None:
            raise NotFound(f"there is no {full}", 404)
        if here is None or (before is not None and before.metadata.uid != here.metadata.uid):
            raise NotFound(f"{full} was deleted during the wait", 404)
        return here
