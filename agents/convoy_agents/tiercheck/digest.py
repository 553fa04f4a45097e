"""Cutting bytes into chunks, each named by its digest.

XXH3-128 (github.com/Cyan4973/xxHash) reads memory at more than 10 GB/s on one core, so nothing is kept, sent
or restored without being looked at. It finds damage, not malice: whoever can write a job's memory can write
its manifests too.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import xxhash

from convoy_controllers.checkpoint.records import MAX_CHUNK, Chunk

Buffer = bytes | bytearray | memoryview


def digest(data: Buffer) -> str:
    """32 hex digits."""
    return str(xxhash.xxh3_128_hexdigest(data))


def cut(length: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of each chunk of so many bytes."""
    for offset in range(0, length, MAX_CHUNK):
        yield offset, min(MAX_CHUNK, length - offset)


def chunks(view: memoryview, pool: ThreadPoolExecutor | None = None) -> tuple[Chunk, ...]:
    """The chunks of these bytes; on all threads of a pool, since xxhash lets go of the interpreter's lock."""
    parts = [(view[offset : offset + size], size) for offset, size in cut(len(view))]
    run = pool.map if pool else map
    return tuple(
        Chunk(name, size)
        for name, (_, size) in zip(run(lambda part: digest(part[0]), parts), parts, strict=True)
    )
