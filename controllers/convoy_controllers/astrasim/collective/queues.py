"""The queues of one rank. Each holds chunks, of which the first few run."""

from __future__ import annotations

from collections.abc import Callable

from convoy_controllers.astrasim.collective.chunk import Chunk


class ChunkQueue:
    """A queue. The chunks that run are at its front; the others are ordered by priority."""

    __slots__ = ("_at_once", "_chunks", "_running", "_start")

    def __init__(self, at_once: int, start: Callable[[Chunk], None]) -> None:
        self._chunks: list[Chunk] = []
        self._running = 0
        self._at_once = at_once
        """Chunks that run at once."""
        self._start = start

    def add(self, chunk: Chunk) -> None:
        """Add a chunk behind those that run and those of the same or a higher priority."""
        chunks = self._chunks
        if not chunks or chunks[-1].started or chunks[-1].priority >= chunk.priority:
            chunks.append(chunk)
            return
        place = next(
            number for number, one in enumerate(chunks) if not one.started and one.priority < chunk.priority
        )
        chunks.insert(place, chunk)

    def remove(self, chunk: Chunk) -> None:
        """Remove a chunk that runs. Its place becomes free with `release`."""
        self._chunks.remove(chunk)

    def release(self) -> None:
        """Start a chunk in the place of one that has ended."""
        self._running -= 1
        self.fill()

    def fill(self) -> None:
        """Start chunks while there are free places."""
        while self._running < self._at_once and self._running < len(self._chunks):
            chunk = self._chunks[self._running]
            chunk.started = True
            self._start(chunk)
            self._running += 1
