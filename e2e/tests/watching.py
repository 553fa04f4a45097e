"""What happened to a job and its pods, and when this machine saw it: the clock of every recovery figure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubernetes import watch

from convoy_crds.meta import GROUP, VERSION
from convoy_crds.terms import LABEL_JOB
from e2e.tests.jobs import PLURAL, Jobs


@dataclass(frozen=True)
class Sight:
    """One state of an object, as the API server told it."""

    at: float
    """Unix seconds."""
    gone: bool
    body: dict[str, Any]


@dataclass
class Watched:
    """Every state of a job and of its pods since the watch began. A context manager."""

    jobs: Jobs
    name: str
    job: list[Sight] = field(default_factory=list)
    pods: dict[str, list[Sight]] = field(default_factory=dict)
    """By pod uid."""

    def __enter__(self) -> Watched:
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
        """Waits until `holds()` is truthy of what was seen, and returns it."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (found := holds()):
                left = deadline - time.monotonic()
                if left <= 0:
                    last = self.job[-1].body.get("status") if self.job else None
                    raise AssertionError(f"not within {seconds:.0f} s: {what}; the status: {last}")
                self._changed.wait(min(left, 1.0))
        return found

    @property
    def status(self) -> dict[str, Any]:
        """The newest status seen."""
        return (self.job[-1].body.get("status") or {}) if self.job else {}

    def first(self, holds: Callable[[dict[str, Any]], Any], after: float) -> float | None:
        """When a status for which `holds` was first seen after a moment."""
        return next((s.at for s in self.job if s.at >= after and holds(s.body.get("status") or {})), None)

    def _follow(self, listing: Any, take: Callable[[Sight], None], arguments: dict[str, Any]) -> None:
        while not self._over.is_set():
            try:
                stream = watch.Watch().stream(
                    listing, namespace=self.jobs.namespace, timeout_seconds=20, **arguments
                )
                for event in stream:
                    body = event["raw_object"]
                    with self._changed:
                        take(Sight(time.time(), event["type"] == "DELETED", body))
                        self._changed.notify_all()
                    if self._over.is_set():
                        return
            except Exception:
                self._over.wait(0.2)

    def _job(self, sight: Sight) -> None:
        if not self.job or self.job[-1].body["metadata"]["resourceVersion"] != _version(sight):
            self.job.append(sight)

    def _pod(self, sight: Sight) -> None:
        seen = self.pods.setdefault(sight.body["metadata"]["uid"], [])
        if not seen or seen[-1].body["metadata"]["resourceVersion"] != _version(sight):
            seen.append(sight)


def _version(sight: Sight) -> str:
    return str(sight.body["metadata"]["resourceVersion"])


def moment(text: str) -> float:
    """Unix seconds of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True)
class Recovery:
    """How a job came through one fault; seconds after the fault, None where a stage did not occur."""

    reason: str
    struck: float
    """Unix seconds of the fault."""
    decided: float
    """The operator's decision, by its own clock."""
    deleted: float | None
    """The pods at fault were gone."""
    created: float | None
    scheduled: float | None
    running: float | None
    """The containers of the replacements ran."""
    formed: float | None
    stepped: float
    """The end of the next incarnation's first step, by the ranks' own clock."""
    replaced: int
    """Pods that were made anew."""
    incarnations: int
    """How often the process group formed."""
    restored: float | None = None
    """Seconds that rank 0 took to read its checkpoint."""


def recovery(seen: Watched, fault_at: float, before: set[str], incarnation: int) -> Recovery:
    """Reads the stages of a recovery that is over from what was watched.

    `before`: uids of the pods at the time of the fault; `incarnation`: of that time.
    """
    fresh = [states for uid, states in seen.pods.items() if uid not in before and states[0].at >= fault_at]
    old = [states for uid, states in seen.pods.items() if uid in before]

    def latest(pick: Callable[[dict[str, Any]], Any]) -> float | None:
        moments = [next((s.at for s in states if pick(s.body)), None) for states in fresh]
        known = [found for found in moments if found is not None]
        return max(known) - fault_at if known else None

    gone = [s.at for states in old for s in states if s.gone and s.at >= fault_at]
    ledger = seen.status["goodput"]
    last = seen.status["restarts"]["last"]
    formed = [s.at for s in seen.job if s.at >= fault_at and _formed(s, seen.status["incarnation"])]
    return Recovery(
        reason=last["reason"],
        struck=fault_at,
        decided=moment(last["at"]) - fault_at,
        deleted=max(gone) - fault_at if gone else None,
        created=latest(lambda body: True),
        scheduled=latest(lambda body: body["spec"].get("nodeName")),
        running=latest(lambda body: body["status"].get("phase") == "Running"),
        formed=min(formed) - fault_at if formed else None,
        stepped=moment(ledger["since"]) - fault_at,
        replaced=len(fresh),
        incarnations=seen.status["incarnation"] - incarnation,
    )


def _formed(sight: Sight, incarnation: int) -> bool:
    status = sight.body.get("status") or {}
    return status.get("incarnation") == incarnation and bool(status.get("membership"))
