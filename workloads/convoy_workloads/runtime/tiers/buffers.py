"""A rank's buffers in the memory of its node. The agent provides the buffers, and the rank's process maps
them.
"""

from __future__ import annotations

import os
import time

from convoy_workloads.runtime.frames import Message
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers import pinning
from convoy_workloads.runtime.tiers.background_worker import BackgroundWorker
from convoy_workloads.runtime.tiers.memory_client import MappedFile, MemoryClient
from convoy_workloads.runtime.tiers.save_status import SaveStatus

RESPONSE_SECONDS = 60.0
"""Maximum number of seconds that the agent may take to provide memory."""
RETRY_SECONDS = 15.0
"""Minimum number of seconds before a rank repeats a request for memory that the agent could not provide."""


class RankBuffers:
    """The buffers of one rank: those for full saves and those for journal segments."""

    def __init__(self, client: MemoryClient, status: SaveStatus, worker: BackgroundWorker) -> None:
        self.may_save = False
        """True once the ranks have agreed on the state to resume from. Before that, this rank must not
        save.
        """
        self._copies = 0
        self._releases = 0
        self._client = client
        self._status = status
        self._worker = worker
        self._files: dict[str, MappedFile] = {}
        self._segment_files: dict[str, MappedFile] = {}
        self._size = 0
        self._tried = 0.0
        self._gpu: int | None = None
        """Number of the GPU that copies to the buffers; None if there is none."""

    def start(self, size: int) -> None:
        """Allow saves, because the ranks have agreed on the state to resume from. Reserve buffers of `size`
        bytes in the background.
        """
        self.may_save = True
        self._gpu = pinning.current_gpu()
        self._status.start()
        self.reserve(size)

    def reserve(self, size: int) -> None:
        """Make every buffer for full saves at least `size` bytes large, in the background."""
        self._worker.submit(self._reserve, size)

    @property
    def copies(self) -> int:
        """Number of copies that the agents make of each save on other nodes."""
        known = self._status.copies
        return self._copies if known is None else known

    def drop_released(self) -> bool:
        """Unmap all buffers if the agent has given the job's memory on this node to another job. Return True
        if it has. The rank requests buffers again after RETRY_SECONDS.

        Call this from the thread that writes to the buffers.
        """
        if self._releases == self._status.releases:
            return False
        self._releases, self._tried = self._status.releases, time.monotonic()
        old = [*self._files.values(), *self._segment_files.values()]
        self._files, self._segment_files = {}, {}
        for file in old:
            file.close()
        return True

    @property
    def capacity(self) -> int:
        """Size in bytes of the smallest buffer for full saves; 0 if there is no buffer."""
        return min((len(file.bytes) for file in self._files.values()), default=0)

    @property
    def too_small(self) -> bool:
        """True if a buffer for full saves is smaller than the size in the last call of `reserve`."""
        return self.capacity < self._size

    @property
    def free(self) -> str:
        """Name of a buffer for full saves that this rank may write to; empty if there is none."""
        buffer = self._status.buffer
        return buffer if buffer in self._files else ""

    def wait_free(self, seconds: float) -> bool:
        """Wait up to `seconds` for a buffer for full saves that this rank may write to. Return True if
        there is one.
        """
        self._status.wait_buffer(seconds)
        return bool(self.free)

    def bytes(self, buffer: str) -> memoryview:
        """Return the memory of the named buffer. Raises KeyError for an unknown name."""
        return (self._files.get(buffer) or self._segment_files[buffer]).bytes

    def retry_reserve(self) -> None:
        """Repeat the last request for full-save buffers if the agent could not provide them. At least
        `RETRY_SECONDS` pass between two requests.
        """
        if self.too_small and time.monotonic() - self._tried >= RETRY_SECONDS:
            self.reserve(self._size)

    def segments(self, size: int) -> list[str]:
        """Return the names of the segment buffers that hold at least `size` bytes."""
        return [name for name, file in self._segment_files.items() if len(file.bytes) >= size]

    def reserve_segments(self, count: int, size: int) -> None:
        """Reserve `count` segment buffers of `size` bytes in the background. If the node has no memory for
        them, all saves are full saves.
        """
        self._worker.submit(self._reserve_segments, count, size)

    def _reserve(self, size: int) -> None:
        self._size, self._tried = size, time.monotonic()
        answer, mapped = self._request({"type": "reserve", "size": size})
        if not mapped:
            self._worker.failure = (
                f"the node has no memory for two buffers of {size} bytes: {answer.get('why')}"
            )
            self._worker.warn(self._worker.failure)
            return
        old, self._files = self._files, mapped
        self._copies = int(answer.get("copies", 0))
        self._worker.failure = ""
        for file in old.values():
            file.close()

    def _reserve_segments(self, count: int, size: int) -> None:
        answer, mapped = self._request({"type": "reserve", "size": size, "segments": count})
        if not mapped:
            log_line(
                f"no journal, because the node has no memory for {count} buffers of {size} bytes: "
                f"{answer.get('why')}"
            )
        self._segment_files = mapped or self._segment_files

    def _request(self, question: Message) -> tuple[Message, dict[str, MappedFile]]:
        """Send a request for buffers. Return the agent's response, and the mapped buffers by name.

        If the agent has refused the request, there are no mapped buffers.
        """
        answer, files = self._client.request(question, RESPONSE_SECONDS)
        names = answer.get("names", [])
        if answer["type"] != "buffers" or len(files) != len(names):
            for fd in files:
                os.close(fd)
            return answer, {}
        mapped = {name: MappedFile(fd, write=True) for name, fd in zip(names, files)}  # noqa: B905
        if self._gpu is not None:
            for file in mapped.values():
                file.pin(self._gpu)
        return answer, mapped
