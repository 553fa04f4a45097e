"""Chunks: fixed-size pieces of a shard, each named by its digest.

XXH3-128 (github.com/Cyan4973/xxHash) processes more than 10 GB/s on one core. So all bytes are checked
whenever they are stored, sent or restored. The digest detects damage but not attacks: a process that can
write a job's memory can also write its manifests.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import xxhash

from convoy_controllers.checkpoint.records import MAX_CHUNK, Chunk

AHEAD = 64
"""Maximum number of chunks of one file in a pool's queue. This bounds the memory of the queue for files of
any length.
"""
_own = threading.local()
"""Thread-local storage: the read buffer of each thread."""
Buffer = bytes | bytearray | memoryview


class Damaged(ValueError):
    """Bytes do not match their digest."""


def digest(data: Buffer) -> str:
    """Return the digest of `data` as 32 hexadecimal digits."""
    return str(xxhash.xxh3_128_hexdigest(data))


def aligned_buffer(size: int) -> memoryview:
    """Return a writable buffer that starts at a page.

    The kernel reads a file into such a buffer several times faster than into a bytearray on some processors:
    the data of a large bytearray starts 16 bytes after a page, and the kernel's `rep movsb` is slow if the
    target lies so little behind the source within a page.
    """
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def chunk_spans(length: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length of each chunk of a shard with `length` bytes."""
    for offset in range(0, length, MAX_CHUNK):
        yield offset, min(MAX_CHUNK, length - offset)


def chunks(fd: int, length: int, pool: ThreadPoolExecutor | None = None) -> tuple[Chunk, ...]:
    """Return the chunks of the first `length` bytes of a file. Raises ValueError if the file is shorter.

    The file is read, not mapped. A pod may truncate its file at any time, and the kernel kills a process
    that accesses a mapped page beyond the end. With a pool, all its threads read the file, since reading
    and hashing release the GIL.
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
        # The caller closes the file next, so wait for the threads that still read it.
        wait([one for one in pending if not one.cancel()])


def _chunk(fd: int, offset: int, size: int) -> Chunk:
    buffer = getattr(_own, "buffer", None)
    if buffer is None:
        buffer = _own.buffer = aligned_buffer(MAX_CHUNK)
    done = 0
    while done < size:
        count = os.preadv(fd, [buffer[done:size]], offset + done)
        if not count:
            raise ValueError(f"the file is truncated: it ends before byte {offset + size}")
        done += count
    return Chunk(digest(buffer[:size]), size)
