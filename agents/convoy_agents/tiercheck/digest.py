"""Chunks: fixed-size pieces of a shard, each named by its digest.

XXH3-128 (github.com/Cyan4973/xxHash) reads memory at more than 10 GB/s on one core, so all bytes are
checked whenever they are kept, sent or restored. It detects damage, not attacks: whoever can write a job's
memory can also write its manifests.
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
"""Maximum chunks of one file that are queued in a pool. It bounds the memory of the queue for files of any
length.
"""
_own = threading.local()
"""The buffer of each thread."""
Buffer = bytes | bytearray | memoryview


class Damaged(ValueError):
    """Bytes that do not match their digest."""


def digest(data: Buffer) -> str:
    """Return the digest of these bytes: 32 hex digits."""
    return str(xxhash.xxh3_128_hexdigest(data))


def chunk_spans(length: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of each chunk of so many bytes."""
    for offset in range(0, length, MAX_CHUNK):
        yield offset, min(MAX_CHUNK, length - offset)


def chunks(fd: int, length: int, pool: ThreadPoolExecutor | None = None) -> tuple[Chunk, ...]:
    """Return the chunks of a file's first `length` bytes. ValueError if the file is shorter.

    The file is read, not mapped: a pod that may write the file may also shorten it, and a process that
    touches a page that is gone is killed. With a pool it is read on all threads, since reading and xxhash
    release the GIL.
    """
    if pool is None:
        return tuple(_chunk(fd, *part) for part in chunk_spans(length))
    found: list[Chunk] = []
    pending: deque[Future[Chunk]] = deque()
    try:
        for part in chunk_spans(length):
            if len(pending) == AHEAD:
                found.append(pending.popleft().result())
            pending.append(pool.submit(_chunk, fd, *part))
        while pending:
            found.append(pending.popleft().result())
        return tuple(found)
    finally:
        wait([one for one in pending if not one.cancel()])  # wait: the caller closes the file next


def _chunk(fd: int, offset: int, size: int) -> Chunk:
    buffer = getattr(_own, "buffer", None)
    if buffer is None:
        buffer = _own.buffer = memoryview(bytearray(MAX_CHUNK))
    done = 0
    while done < size:
        count = os.preadv(fd, [buffer[done:size]], offset + done)
        if not count:
            raise ValueError(f"the file is truncated: it ends before byte {offset + size}")
        done += count
    return Chunk(digest(buffer[:size]), size)
