"""The progress of a rank's saves, polled from the agent, and the buffers that the rank may write next."""

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
_MAX_TIMED = 8
"""Maximum number of unfinished saves whose duration is measured. A rank has at most this many buffers."""


class SaveStatus:
    """Polls the agent for the progress of this rank's saves. It uses a connection of its own, which stays
    open until the process ends.
    """

    def __init__(self, client: MemoryClient) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._written = 0
        """Number of this rank's writes that have ended: they were reported to the agent, or they failed."""
        self._writing: dict[str, tuple[Generation, int]] = {}
        """For each buffer that is being written: its generation, and the value of `_written` when the write
        started.

        An agent that has not yet received the rank's report may still count the buffer as free.
        """
        self._buffer = ""
        self._segments: list[str] = []
        self._marks: dict[str, Generation] = {}
        self._holds: set[Generation] = set()
        self._uploads: set[Generation] = set()
        self._started: dict[Generation, float] = {}
        """Monotonic time in seconds when each of the newest writes started."""
        self._seconds: dict[str, float] = {}
        self.interval = 0.0
        """Seconds between two saves, as the operator has chosen; 0 if the value from the environment
        applies.
        """
        self.copies: int | None = None
        """Number of copies that the agents make of each save; None before the agent has reported it."""
        self.releases = 0
        """Number of times that the agent has given the job's memory on this node to another job."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that polls the agent, unless it runs already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="convoy-memory", daemon=True)
            self._thread.start()

    @property
    def buffer(self) -> str:
        """Name of a buffer for full saves that this rank may write to; empty if there is none."""
        return self._buffer

    @property
    def segments(self) -> list[str]:
        """Names of the buffers for journal segments that this rank may write to."""
        return self._segments

    def start_write(self, buffer: str, generation: Generation) -> None:
        """Record that the rank starts to write the named buffer."""
        with self._changed:
            self._writing[buffer] = (generation, self._written)
            self._buffer = "" if buffer == self._buffer else self._buffer
            self._segments = [name for name in self._segments if name != buffer]
            others = sorted(self._started.items())[1 - _MAX_TIMED :]
            self._started = {**dict(others), generation: time.monotonic()}

    def finish_write(self) -> None:
        """Record that the current write has ended: it was reported to the agent, or it failed."""
        with self._changed:
            self._written += 1

    def reached(self, tier: str, generation: Generation) -> bool:
        """Return True if this generation, or a later one, is complete at the tier `tier`."""
        mark = self._marks.get(tier)
        return mark is not None and mark >= generation

    def seconds_to(self, tier: str) -> float:
        """Return the seconds from the start of a write until its generation was complete at the tier
        `tier`.

        The value is that of the newest generation that is complete at this tier; 0 if none is complete.
        """
        return self._seconds.get(tier, 0.0)

    def uploads(self, generation: Generation) -> bool:
        """Return True if the agent will upload this generation, which is complete at the tier local, to the
        job's store.
        """
        return generation in self._uploads

    def wait_buffer(self, seconds: float) -> bool:
        """Wait up to `seconds` for a buffer for full saves that this rank may write to. Return True if
        there is one.
        """
        return self._wait(lambda: bool(self._buffer), seconds)

    def wait_reached(self, generation: Generation, tier: str, seconds: float) -> bool:
        """Wait at most `seconds` until a sealed generation is complete at the tier `tier`, or is abandoned.
        Return True if it is complete.
        """
        self._wait(
            lambda: self.reached(tier, generation) or not self._in_flight(generation),
            seconds,
        )
        return self.reached(tier, generation)

    def abandoned(self, generation: Generation) -> bool:
        """Return True if the agents have dropped the written generation before it was complete at the tier
        local.
        """
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
                # The agent refused the poll or is unavailable. The next save reports such an error to the
                # user, so only poll again here.
                known = ""
                time.sleep(_PAUSE)
                continue
            with self._changed:
                known = answer["status"]
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    self._apply(stand, written)
                self._changed.notify_all()

    def _apply(self, stand: Any, written: int) -> None:
        """Update this object from `stand`, the status that the agent sent. `written`: value of `_written`
        when the status was requested.
        """
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
        self.copies = int(stand["copies"]) if "copies" in stand else None
        self.releases = int(stand.get("releases", 0))
