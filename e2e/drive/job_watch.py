"""Records every state of a job and its pods, and the time at which this process received each state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubernetes import watch

from convoy_crds.meta import GROUP, VERSION
from convoy_crds.terms import LABEL_JOB
from e2e.drive.jobs import PLURAL, Jobs


@dataclass(frozen=True)
class ObservedState:
    """One state of an object, as the API server sent it."""

    at: float
    """Time of receipt in Unix seconds."""
    deleted: bool
    body: dict[str, Any]


@dataclass
class JobWatch:
    """A context manager that records every state of a job and of its pods."""

    jobs: Jobs
    name: str
    job: list[ObservedState] = field(default_factory=list)
    pods: dict[str, list[ObservedState]] = field(default_factory=dict)
    """States of each pod, by the pod's uid."""

    def __enter__(self) -> JobWatch:
        self._over = threading.Event()
        self._changed = threading.Condition()
        custom = self.jobs.custom.list_namespaced_custom_object
        pods = self.jobs.core.list_namespaced_pod
        arguments = {"group": GROUP, "version": VERSION, "plural": PLURAL}
        selector = {"label_selector": f"{LABEL_JOB}={self.name}"}
        named = {"field_selector": f"metadata.name={self.name}"}
        self._threads = [
            threading.Thread(
                target=self._follow, args=(custom, self._job, {**arguments, **named}), daemon=True
            ),
            threading.Thread(target=self._follow, args=(pods, self._pod, selector), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def until(self, holds: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait until `holds()` is true for the recorded states, and return its value. Raises AssertionError
        after `seconds`.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (found := holds()):
                left = deadline - time.monotonic()
                if left <= 0:
                    last = self.job[-1].body.get("status") if self.job else None
                    raise AssertionError(f"timed out after {seconds:.0f} s: {what}; the last status: {last}")
                self._changed.wait(min(left, 1.0))
        return found

    @property
    def status(self) -> dict[str, Any]:
        """The job's newest recorded status."""
        return (self.job[-1].body.get("status") or {}) if self.job else {}

    def first(self, holds: Callable[[dict[str, Any]], Any], after: float) -> float | None:
        """Return the Unix time at which the first status for which `holds` is true was received. Ignore
        statuses received before `after`. Return None if there is no such status.
        """
        return next((s.at for s in self.job if s.at >= after and holds(s.body.get("status") or {})), None)

    def _follow(
        self, listing: Any, record: Callable[[ObservedState], None], arguments: dict[str, Any]
    ) -> None:
        while not self._over.is_set():
            try:
                stream = watch.Watch().stream(
                    listing, namespace=self.jobs.namespace, timeout_seconds=20, **arguments
                )
                for event in stream:
                    body = event["raw_object"]
                    with self._changed:
                        record(ObservedState(time.time(), event["type"] == "DELETED", body))
                        self._changed.notify_all()
                    if self._over.is_set():
                        return
            except Exception:
                self._over.wait(0.2)

    def _job(self, state: ObservedState) -> None:
        if not self.job or self.job[-1].body["metadata"]["resourceVersion"] != _version(state):
            self.job.append(state)

    def _pod(self, state: ObservedState) -> None:
        seen = self.pods.setdefault(state.body["metadata"]["uid"], [])
        if not seen or seen[-1].body["metadata"]["resourceVersion"] != _version(state):
            seen.append(state)


def _version(state: ObservedState) -> str:
    return str(state.body["metadata"]["resourceVersion"])
