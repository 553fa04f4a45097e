"""How a rank's saves stand in its node's memory, and which buffer it may write next."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.tiers.memory_client import RESPONSE_SECONDS, AgentUnavailable, MemoryClient

LOCAL, PEER, REMOTE = "local", "peer", "remote"
_PAUSE = 1.0
_TIMED = 8
"""Saves on their way whose time is taken; there are no more buffers than that."""


class SaveStatus:
    """Asks again and again, on a line of its own, as long as the process lives."""

    def __init__(self, client: MemoryClient) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._written = 0
        """Saves that the agent has heard of."""
        self._writing: dict[str, tuple[Generation, int]] = {}
        """By buffer, the generation, and `_written` when it began. Until the agent is known to know of it, it
        may still call the buffer free."""
        self._buffer = ""
        self._segments: list[str] = []
        self._marks: dict[str, Generation] = {}
        self._holds: set[Generation] = set()
        self._uploads: set[Generation] = set()
        self._started: dict[Generation, float] = {}
        """When the newest saves began to be written, on the monotonic clock."""
        self._seconds: dict[str, float] = {}
        self.interval = 0.0
        """Seconds between two saves, as the job's operator has chosen; 0: what this process was told."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to ask."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="convoy-memory", daemon=True)
            self._thread.start()

    @property
    def buffer(self) -> str:
        """A buffer that may be written now; empty for none."""
        return self._buffer

    @property
    def segments(self) -> list[str]:
        """RankBuffers for journal segments in which nothing is kept."""
        return self._segments

    def start_write(self, buffer: str, generation: Generation) -> None:
        """The rank begins to write a buffer."""
        with self._changed:
            self._writing[buffer] = (generation, self._written)
            self._buffer = "" if buffer == self._buffer else self._buffer
            self._segments = [name for name in self._segments if name != buffer]
            others = sorted(self._started.items())[1 - _TIMED :]
            self._started = {**dict(others), generation: time.monotonic()}

    def finish_write(self) -> None:
        """The agent has heard that the buffer is written."""
        with self._changed:
            self._written += 1

    def reached(self, tier: str, generation: Generation) -> bool:
        """Whether a generation of this incarnation stands at a tier."""
        mark = self._marks.get(tier)
        return mark is not None and mark >= generation

    def seconds_to(self, tier: str) -> float:
        """Seconds from the first byte of the newest save that stands at a tier until it did; 0 before."""
        return self._seconds.get(tier, 0.0)

    def uploads(self, generation: Generation) -> bool:
        """Whether a generation that stands locally is to go to the job's store."""
        return generation in self._uploads

    def wait_buffer(self, seconds: float) -> bool:
        """Whether a buffer may be written, within so many seconds."""
        return self._wait(lambda: bool(self._buffer), seconds)

    def wait_reached(self, generation: Generation, tier: str, seconds: float) -> bool:
        """Waits until a sealed generation stands at a tier, or will not any more. Whether it does."""
        self._wait(
            lambda: self.reached(tier, generation) or not self._in_flight(generation),
            seconds,
        )
        return self.reached(tier, generation)

    def abandoned(self, generation: Generation) -> bool:
        """Whether a generation that was written is not kept any more, and does not stand."""
        with self._changed:
            return not self.reached(LOCAL, generation) and not self._in_flight(generation)

    def _in_flight(self, generation: Generation) -> bool:
        return generation in self._holds or any(one == generation for one, _ in self._writing.values())

    def _wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not holds():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    def _run(self) -> None:
        known = ""
        while True:
            written = self._written
            try:
                answer, _ = self._client.request({"type": "poll", "known": known}, 2 * RESPONSE_SECONDS)
                stand: Any = json.loads(answer["status"])
            except (AgentUnavailable, KeyError, ValueError):
                # Refused, or nobody there: whoever saves says so.
                known = ""
                time.sleep(_PAUSE)
                continue
            with self._changed:
                known = answer["status"]
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    self._apply(stand, written)
                self._changed.notify_all()

    def _apply(self, stand: Any, written: int) -> None:
        """`written`: as it was when the question was asked."""
        before = self._marks
        self._marks = {tier: Generation(int(pair[0]), int(pair[1])) for tier, pair in stand["marks"].items()}
        for tier, mark in self._marks.items():
            if mark in self._started and mark != before.get(tier):
                self._seconds[tier] = time.monotonic() - self._started[mark]
        self._holds = {Generation(int(pair[0]), int(pair[1])) for pair in stand["holds"]}
        self._uploads = {Generation(int(pair[0]), int(pair[1])) for pair in stand["uploads"]}
        for name, (generation, before_it) in list(self._writing.items()):
            if generation in self._holds or written > before_it:
                del self._writing[name]
        self._buffer = "" if stand["buffer"] in self._writing else str(stand["buffer"])
        self._segments = [str(name) for name in stand.get("segments", ()) if name not in self._writing]
        self.interval = float(stand.get("interval", 0))
