"""The state of a serving replica that is costly to build again, such as an index, a cache or a table.

Rank 0 of a replica saves the state to the memory of its node. The agents send copies to other nodes. A
replica that starts gets its own newest state back. If it has none, it gets the newest state that any
replica of its role and revision has saved. So a state must be valid for every replica of its role and
revision.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.rank_context import RankContext, from_environment
from convoy_workloads.runtime.tiers.memory_client import AgentUnavailable, MappedFile, MemoryClient

SAVE_SECONDS = 30.0
"""Seconds within which the agent must answer each request of a save."""
RESTORE_SECONDS = 30.0
"""Seconds within which the agent must answer a restore, or report that it is at work."""
RETRY_SECONDS = 15.0
"""Seconds for which a save is not tried again after the node had no memory for it."""
STEP_BYTES = 1024 * 1024
"""Sizes of buffers are multiples of this, so that a state that grows slowly needs few larger buffers."""


@dataclass(frozen=True)
class SavedState:
    """A state that a replica saved."""

    data: bytes
    saved_at: float
    """Time of the save in Unix seconds."""
    replica: int
    """Number of the replica that saved the state, within its role."""


class ReplicaState:
    """Saves and restores the state of this replica. All methods are thread-safe.

    Without an agent, without `spec.checkpoint.tiers.local`, and in ranks other than 0, nothing is saved and
    nothing is restored. No fault of the memory ends the program.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Prepare, without a call to the agent. `environment`: environment variables instead of those of the
        process.
        """
        context = from_environment(os.environ if environment is None else environment)
        self._client = _client(context)
        self._lock = threading.Lock()
        self._files: dict[str, MappedFile] = {}
        self._last_ms = 0
        self._refused = -RETRY_SECONDS
        self._logged = ""

    @property
    def available(self) -> bool:
        """True if this process may save a state: an agent is there, and has not refused."""
        return self._client is not None

    def restore(self) -> SavedState | None:
        """Return the newest state; None if there is none, or if it cannot be read."""
        with self._lock:
            answer, files = self._request({"type": "restore", "attempt": 0}, RESTORE_SECONDS)
            if answer.get("found") is not True or len(files) != 1:
                _close(files)
                self._log("no saved state is restored", answer)
                return None
            mapped = MappedFile(files[0], write=False)
            data = bytes(mapped.bytes[: answer["length"]])
            mapped.close()
            self._last_ms = int(answer["savedMs"])
            self._request({"type": "restored"}, SAVE_SECONDS)
            return SavedState(data, self._last_ms / 1000, int(answer["replica"]))

    def save(self, data: bytes | bytearray | memoryview) -> bool:
        """Save a state, which replaces the previous one. Return True once it outlives this process: its
        copies on other nodes follow in the background.

        Return False if nothing was saved: the previous state is still being copied, the node has no memory,
        or no agent answers. Raises ValueError if `data` is empty.
        """
        with memoryview(data) as view, view.cast("B") as content:
            if not content.nbytes:
                raise ValueError("the state is empty: to save nothing, do not call save")
            with self._lock:
                return self._save(content)

    def close(self) -> None:
        """Release the memory of this process. The saved state stays."""
        with self._lock:
            self._drop_files()
            if self._client is not None:
                self._client.close()

    def _save(self, content: memoryview) -> bool:
        if self._client is None or not self._reserve(content.nbytes):
            return False
        status, _ = self._request({"type": "poll", "known": ""}, SAVE_SECONDS)
        file = self._files.get(status.get("buffer", ""))
        if file is None:
            return False
        file.bytes[: content.nbytes] = content
        self._last_ms = max(int(time.time() * 1000), self._last_ms + 1, int(status.get("savedMs", 0)) + 1)
        answer, _ = self._request(
            {
                "type": "seal",
                "buffer": status["buffer"],
                "step": self._last_ms,
                "length": content.nbytes,
                "world": 1,
            },
            SAVE_SECONDS,
        )
        self._log("the state is not saved", answer)
        return bool(answer["type"] == "sealed")

    def _reserve(self, size: int) -> bool:
        """Return True if the buffers have `size` bytes each. Reserve larger ones if necessary."""
        if min((len(one.bytes) for one in self._files.values()), default=0) >= size:
            return True
        if time.monotonic() - self._refused < RETRY_SECONDS:
            return False
        wanted = -(-size // STEP_BYTES) * STEP_BYTES
        answer, files = self._request({"type": "reserve", "size": wanted}, SAVE_SECONDS)
        names = answer.get("names", [])
        if answer["type"] != "buffers" or len(files) != len(names):
            _close(files)
            self._refused = time.monotonic()
            self._log("the state is not saved", answer)
            return False
        self._drop_files()
        self._files = {name: MappedFile(fd, write=True) for name, fd in zip(names, files)}  # noqa: B905
        return True

    def _request(self, question: Message, seconds: float) -> tuple[Message, list[int]]:
        """Return the agent's answer and its files. An agent that does not answer counts as one that fails."""
        if self._client is None:
            return {"type": "absent"}, []
        try:
            return self._client.request(question, seconds)
        except AgentUnavailable as error:
            return {"type": "failed", "why": str(error)}, []

    def _log(self, what: str, answer: Message) -> None:
        """Log an answer that has a reason, unless it repeats the previous line."""
        line = f"{what}: {answer['why']}" if answer.get("why") else ""
        if line and line != self._logged:
            log_line(line)
        self._logged = line

    def _drop_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}


def _client(context: RankContext) -> MemoryClient | None:
    if not context.socket or not context.launched or context.rank:
        return None
    hello: Message = {"type": "hello", "role": "memory", "incarnation": context.incarnation, "rank": 0}
    return MemoryClient(context.socket, hello)


def _close(files: list[int]) -> None:
    for fd in files:
        os.close(fd)
