"""The base class of collections of jobs: their pods and Events."""

from __future__ import annotations

from typing import Any, TypeVar

from convoy.client.awaited import Awaited
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import LABEL_INDEX, LABEL_JOB, LABEL_KIND
from convoy_crds.trainingjob import TrainingJob

EVENTS_PAGE = 500
"""Maximum number of Events in one response of the API server."""
EVENT_PAGES = 10
"""Maximum number of responses that `pod_events` reads."""

J = TypeVar("J", TrainingJob, ServingJob)
"""The model of a kind of jobs."""


class Jobs(Awaited[J]):
    """The jobs of one kind in the client's namespace, with their pods and Events."""

    def pods(self, name: str) -> list[Any]:
        """Return the pods of a job as objects of the package kubernetes, in the order of their
        ranks.
        """
        return self._pods(self._selector(name))

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
