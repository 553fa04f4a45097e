"""A rank's buffers in its node's memory: made ready by the agent, mapped into this process."""

from __future__ import annotations

import os
import time

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers.background_worker import BackgroundWorker
from convoy_workloads.runtime.tiers.memory_client import MappedFile, MemoryClient
from convoy_workloads.runtime.tiers.save_status import SaveStatus

RESPONSE_SECONDS = 60.0
"""For the agent to make memory ready."""
AGAIN_SECONDS = 15.0
"""Between two tries to get memory that there was not."""


class RankBuffers:
    """Those for full saves, and those for the segments of a journal."""

    def __init__(self, client: MemoryClient, status: SaveStatus, worker: BackgroundWorker) -> None:
        self.may_save = False
        """Whether it is settled what this run goes on from, so that it may save."""
        self.copies = 0
        """On other nodes, of each save."""
        self._client = client
        self._status = status
        self._worker = worker
        self._areas: dict[str, MappedFile] = {}
        self._ring: dict[str, MappedFile] = {}
        self._size = 0
        self._tried = 0.0

    def start(self, size: int) -> None:
        """What this run goes on from is here: has buffers of so many bytes made ready, beside the training."""
        self.may_save = True
        self._status.start()
        self.want(size)

    def want(self, size: int) -> None:
        """Has the buffers hold so many bytes at least, beside the training."""
        self._worker.submit(self._reserve, size)

    @property
    def room(self) -> int:
        """Bytes that any buffer for full saves holds; 0 without any."""
        return min((len(area.bytes) for area in self._areas.values()), default=0)

    @property
    def short(self) -> bool:
        """Whether there is less memory than was asked for."""
        return self.room < self._size

    @property
    def free(self) -> str:
        """A buffer that may be written; empty for none."""
        buffer = self._status.buffer
        return buffer if buffer in self._areas else ""

    def wait_free(self, seconds: float) -> bool:
        """Whether a buffer may be written, within so many seconds."""
        self._status.wait_buffer(seconds)
        return bool(self.free)

    def bytes(self, buffer: str) -> memoryview:
        """The memory of a buffer. KeyError."""
        return (self._areas.get(buffer) or self._ring[buffer]).bytes

    def try_again(self) -> None:
        """Asks again, now and then, for memory that there was not."""
        if self.short and time.monotonic() - self._tried >= AGAIN_SECONDS:
            self.want(self._size)

    def segments(self, size: int) -> list[str]:
        """RankBuffers for segments of so many bytes."""
        return [name for name, area in self._ring.items() if len(area.bytes) >= size]

    def want_segments(self, count: int, size: int) -> None:
        """Has so many buffers for segments made ready, beside the training. Without memory for them all saves
        are full ones.
        """
        self._worker.submit(self._reserve_segments, count, size)

    def _reserve(self, size: int) -> None:
        self._size, self._tried = size, time.monotonic()
        answer, areas = self._request({"type": "reserve", "size": size})
        if not areas:
            self._worker.failure = f"no memory for {size} bytes twice: {answer.get('why')}"
            self._worker.warn(self._worker.failure)
            return
        old, self._areas = self._areas, areas
        self.copies = int(answer.get("copies", 0))
        self._worker.failure = ""
        for area in old.values():
            area.close()

    def _reserve_segments(self, count: int, size: int) -> None:
        answer, areas = self._request({"type": "reserve", "size": size, "segments": count})
        if not areas:
            log_line(f"no memory for a journal of {count} times {size} bytes: {answer.get('why')}")
        self._ring = areas or self._ring

    def _request(self, question: Message) -> tuple[Message, dict[str, MappedFile]]:
        """The agent's answer, and the buffers that came with it, by name; none when it refused."""
        answer, files = self._client.request(question, RESPONSE_SECONDS)
        names = answer.get("names", [])
        if answer["type"] != "buffers" or len(files) != len(names):
            for fd in files:
                os.close(fd)
            return answer, {}
        return answer, {name: MappedFile(fd, write=True) for name, fd in zip(names, files)}  # noqa: B905
