"""Cutting bytes into chunks, each named by its digest.

XXH3-128 (github.com/Cyan4973/xxHash) reads memory at more than 10 GB/s on one core, so nothing is kept, sent
or restored without being looked at. It finds damage, not malice: whoever can write a job's memory can write
its manifests too.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import xxhash

from convoy_controllers.checkpoint.records import MAX_CHUNK, Chunk

AHEAD = 64
"""Chunks of a file that a pool is pending for at once: what is pending costs memory, however long the file is."""
_own = threading.local()
"""Each thread's buffer."""
Buffer = bytes | bytearray | memoryview


class Damaged(ValueError):
    """Bytes that do not match their digest."""


def digest(data: Buffer) -> str:
    """32 hex digits."""
    return str(xxhash.xxh3_128_hexdigest(data))


def cut(length: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of each chunk of so many bytes."""
    for offset in range(0, length, MAX_CHUNK):
        yield offset, min(MAX_CHUNK, length - offset)


def chunks(fd: int, length: int, pool: ThreadPoolExecutor | None = None) -> tuple[Chunk, ...]:
    """The chunks of a file's first bytes. ValueError when it has not so many.

    Read, not mapped: a pod that may write the file may also shorten it, and whoever looks at a page that is
    gone is killed. On all threads of a pool, since reading and xxhash let go of the interpreter's lock.
    """
    if pool is None:
        return tuple(_chunk(fd, *part) for part in cut(length))
    found: list[Chunk] = []
    pending: deque[Future[Chunk]] = deque()
    try:
        for part in cut(length):
            if len(pending) == AHEAD:
                found.append(pending.popleft().result())
            pending.append(pool.submit(_chunk, fd, *part))
        while pending:
            found.append(pending.popleft().result())
        return tuple(found)
    finally:
        wait([one for one in pending if not one.cancel()])  # nobody reads what the caller closes


def _chunk(fd: int, offset: int, size: int) -> Chunk:
    buffer = getattr(_own, "buffer", None)
    if buffer is None:
        buffer = _own.buffer = memoryview(bytearray(MAX_CHUNK))
    done = 0
    while done < size:
        count = os.preadv(fd, [buffer[done:size]], offset + done)
        if not count:
            raise ValueError(f"the file ends before byte {offset + size}")
        done += count
    return Chunk(digest(buffer[:size]), size)
