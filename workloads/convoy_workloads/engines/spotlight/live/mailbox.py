"""A mailbox between workers, which call and wait, and the driver, which collects calls and answers them.

The driver looks into it between other work, so only one thread ever touches the ledger.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_workloads.engines.spotlight.live.messages import Message, NoAnswer

MAX_CALLS = 2048
"""Calls that may wait at a time. Further callers get no answer, and try again."""


@dataclass(frozen=True, slots=True)
class Call:
    """A message of a worker that waits for an answer."""

    number: int
    worker: str
    message: Message


class Mailbox:
    """Calls and their answers. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        self._calls: dict[int, Call] = {}
        """Calls that the driver has not collected."""
        self._answers: dict[int, Any] = {}
        self._waiting: set[int] = set()

    def call(self, worker: str, message: Message, seconds: float) -> Any:
        """Return the driver's answer. Raises NoAnswer if there is none within `seconds`."""
        with self._changed:
            if len(self._waiting) >= MAX_CALLS:
                raise NoAnswer
            self._number += 1
            number = self._number
            self._calls[number] = Call(number, worker, message)
            self._waiting.add(number)
            self._changed.notify_all()
            try:
                if not self._changed.wait_for(lambda: number in self._answers, seconds):
                    raise NoAnswer
                return self._answers.pop(number)
            finally:
                self._waiting.discard(number)
                self._calls.pop(number, None)

    def collect(self, seconds: float) -> list[Call]:
        """Return the calls that have not been collected, as soon as there is one; none after `seconds`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: bool(self._calls), max(0.0, deadline - time.monotonic()))
            found = list(self._calls.values())
            self._calls.clear()
            return found

    def reply(self, answers: Mapping[int, Any]) -> None:
        """Answer calls by their numbers. An answer that nobody waits for any more is dropped."""
        with self._changed:
            self._answers.update((key, one) for key, one in answers.items() if key in self._waiting)
            self._changed.notify_all()
