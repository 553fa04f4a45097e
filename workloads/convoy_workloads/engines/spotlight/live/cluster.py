"""The interface between the live workers and the processes that run them: actors of Ray, or threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from convoy_workloads.engines.spotlight.live.computation import Computation
from convoy_workloads.engines.spotlight.live.mailbox import Call, Mailbox
from convoy_workloads.engines.spotlight.live.messages import Message
from convoy_workloads.engines.spotlight.live.worker import Worker

PAUSE_SECONDS = 0.05
"""Seconds between two pulls of a worker that got nothing."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Workers that have ended or started, and the slots for workers on all present nodes."""

    ended: Sequence[str] = ()
    """Names of workers that have ended."""
    started: Mapping[str, str] = field(default_factory=dict)
    """Names of workers that were started, each with its slot."""
    slots: Mapping[str, float | None] = field(default_factory=dict)
    """The slots of all present nodes, occupied or not. Each has the Unix time at which its pod started, or
    None if that is unknown. A slot keeps its name if the pod joins another head.
    """
    failed: int = 0
    """Number of the ended workers that failed."""


class Cluster(Protocol):
    """Workers on nodes that come and go."""

    def reconcile(self) -> Changes:
        """Start workers in free slots. Return what has changed since the last call."""

    def groups(self) -> int:
        """Return the number of groups of workers that can compute, each one request batch at a time."""

    def fit(self, requests: int) -> None:
        """Let workers compute together if there are fewer open requests than workers."""

    def draining(self) -> frozenset[str]:
        """Return the names of the workers whose nodes are about to vanish."""

    def store(self, vector: Any) -> Any:
        """Put weights where workers can fetch them. Return the answer to their request for them."""

    def collect(self, seconds: float) -> list[Call]:
        """Return the calls of workers, as soon as there is one; none after `seconds`."""

    def reply(self, answers: Mapping[int, Any]) -> None:
        """Answer calls by their numbers."""


class LocalClient:
    """The connection of a worker in the driver's own process."""

    def __init__(self, mailbox: Mailbox, name: str) -> None:
        self._mailbox = mailbox
        self._name = name

    def call(self, message: Message, seconds: float) -> Any:
        """Return the driver's answer."""
        return self._mailbox.call(self._name, message, seconds)


class LocalWorker:
    """A worker in a thread of the driver's process. It serves requests while nothing is trained there."""

    def __init__(self, name: str, computation: Callable[[LocalClient], Computation], capacity: int) -> None:
        self.name = name
        self.mailbox = Mailbox()
        self._ended = threading.Event()
        client = LocalClient(self.mailbox, name)
        self._worker = Worker(client, computation(client), capacity, self._pause, self._ended.is_set)
        self._thread = threading.Thread(target=self._worker.run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the worker to end. It surrenders what it holds."""
        self._ended.set()

    def join(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end. Return True if the worker has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _pause(self) -> None:
        self._ended.wait(PAUSE_SECONDS)
