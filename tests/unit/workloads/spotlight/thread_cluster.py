"""A cluster whose workers are threads. They can be killed at any message, with and without notice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from convoy_workloads.engines.spotlight.live.cluster import Changes, LocalClient
from convoy_workloads.engines.spotlight.live.computation import Computation
from convoy_workloads.engines.spotlight.live.mailbox import Call, Mailbox
from convoy_workloads.engines.spotlight.live.messages import Message
from convoy_workloads.engines.spotlight.live.worker import Worker


class Killed(BaseException):
    """Ends a worker's thread at once."""


class KillableClient(LocalClient):
    def __init__(self, mailbox: Mailbox, name: str) -> None:
        super().__init__(mailbox, name)
        self.killed = threading.Event()

    def call(self, message: Message, seconds: float) -> Any:
        if self.killed.is_set():
            raise Killed
        answer = super().call(message, seconds)
        if self.killed.is_set():
            raise Killed
        return answer


class ThreadCluster:
    """`wanted`: names of the nodes that exist. Each has one worker."""

    def __init__(self, computation: Callable[[LocalClient], Computation], capacity: int = 4) -> None:
        self.mailbox = Mailbox()
        self.wanted: set[str] = set()
        self.noticed: set[str] = set()
        self._computation = computation
        self._capacity = capacity
        self._running: dict[str, tuple[threading.Thread, KillableClient]] = {}
        self.errors: list[BaseException] = []

    def kill(self, name: str) -> None:
        self.wanted.discard(name)
        if name in self._running:
            self._running[name][1].killed.set()

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def reconcile(self) -> Changes:
        ended = [name for name, (thread, _) in self._running.items() if not thread.is_alive()]
        for name in ended:
            del self._running[name]
        started = sorted(self.wanted - self.noticed - set(self._running))
        for name in started:
            self._start(name)
        return Changes(ended, {name: name for name in started}, dict.fromkeys(self._running))

    def groups(self) -> int:
        return len(self._running)

    def fit(self, requests: int) -> None:
        """Threads form no groups."""

    def draining(self) -> frozenset[str]:
        return frozenset(self.noticed)

    def store(self, vector: Any) -> Any:
        return vector

    def collect(self, seconds: float) -> list[Call]:
        return self.mailbox.collect(seconds)

    def reply(self, answers: Mapping[int, Any]) -> None:
        self.mailbox.reply(answers)

    def _start(self, name: str) -> None:
        client = KillableClient(self.mailbox, name)
        pause = threading.Event()
        worker = Worker(
            client,
            self._computation(client),
            self._capacity,
            lambda: pause.wait(0.01) and None,
            lambda: name in self.noticed,
        )

        def run() -> None:
            try:
                worker.run()
            except Killed:
                pass
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._running[name] = (thread, client)
        thread.start()
