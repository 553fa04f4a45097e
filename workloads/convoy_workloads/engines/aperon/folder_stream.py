"""The files of a folder as a stream: for each file the length of its name (1 byte), its name, its length
(8 bytes, little endian) and its bytes. A length of 0 for the name ends the stream.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.storage import flush_to_disk

PART = 1 << 20
"""Bytes of a part."""
_SIZE = struct.Struct("<Q")
_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


async def sent(folder: Path) -> AsyncIterator[bytes]:
    """Yield the files of a folder in parts. They do not change."""
    for path in await asyncio.to_thread(lambda: sorted(one for one in folder.iterdir() if one.is_file())):
        name = path.name.encode()
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            yield bytes([len(name)]) + name + _SIZE.pack(size)
            while part := await asyncio.to_thread(file.read, PART):
                yield part
    yield b"\0"


async def received(folder: Path, parts: AsyncIterator[bytes], *, durable: bool) -> None:
    """Write the files of a stream to a folder. `durable`: wait until they are on the disk. Raises
    InvalidInput if the stream is wrong, and the errors of `parts`.
    """
    reader = _Reader(parts)
    while length := (await reader.exactly(1))[0]:
        name = await reader.exactly(length)
        if not _NAME.fullmatch(name):
            raise InvalidInput("state", f"{name!r} is no name of a file of an index")
        (size,) = _SIZE.unpack(await reader.exactly(_SIZE.size))
        with (folder / name.decode()).open("xb") as file:
            while size:
                part = await reader.some(min(size, PART))
                size -= len(part)
                await asyncio.to_thread(file.write, part)
            await asyncio.to_thread(_finish, file, durable)
    await reader.end()


def _finish(file: BinaryIO, durable: bool) -> None:
    if durable:
        flush_to_disk(file)
    else:
        file.flush()


class _Reader:
    """Reads bytes across the borders of parts."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self._left = memoryview(b"")

    async def some(self, most: int) -> bytes:
        """Return at least one byte, and at most `most`."""
        while not self._left:
            part = await anext(self._parts, None)
            if part is None:
                raise InvalidInput("state", "the stream ends in the middle of a file")
            self._left = memoryview(part)
        found, self._left = self._left[:most], self._left[most:]
        return bytes(found)

    async def exactly(self, size: int) -> bytes:
        """Return the next bytes."""
        found = b""
        while len(found) < size:
            found += await self.some(size - len(found))
        return found

    async def end(self) -> None:
        """Read to the end. Raises InvalidInput if there is more."""
        if self._left:
            raise InvalidInput("state", "the stream goes on after its end")
        async for part in self._parts:
            if part:
                raise InvalidInput("state", "the stream goes on after its end")
