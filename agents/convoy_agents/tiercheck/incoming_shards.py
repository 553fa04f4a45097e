"""Shards that are being transferred to this node's memory. Other nodes send copies of their shards. Shards
for a restore are fetched from other nodes or from the store.

The chunks of each shard are written to a file of its own. The file's name starts with a dot until all
chunks have arrived. If the agent restarts during a transfer, the shard is transferred again from the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from convoy_agents.tiercheck import digest, memory
from convoy_agents.tiercheck.digest import Damaged
from convoy_controllers.checkpoint.records import Chunk, Manifest

MAX_INCOMING = 64
"""Maximum number of shards in transfer. If another transfer starts, the oldest one is dropped."""

ReadLocal = Callable[[str], bytes | None]
"""A function that reads a chunk, given by its digest, from the complete shards on this node. It returns
None if none of them has the chunk undamaged.
"""


@dataclass(slots=True)
class IncomingShard:
    """A shard in transfer to this node."""

    manifest: Manifest
    missing: set[int]
    """Indexes of the chunks that have not arrived yet."""
    offsets: list[int] = field(default_factory=list)
    copy_of: str = ""
    """The node for which this node keeps the shard as a copy; empty for a shard that this node fetched."""


class IncomingShards:
    """The shards in transfer, by id. All methods block and are not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shards: dict[str, IncomingShard] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._shards

    def __iter__(self) -> Iterator[IncomingShard]:
        """Iterate over a snapshot, so that the loop may drop shards."""
        return iter(list(self._shards.values()))

    def expect(self, manifest: Manifest, copy_of: str, local: Callable[[], ReadLocal]) -> list[int]:
        """Start the transfer of a shard, unless it is in transfer already. Return the indexes of the chunks
        that the sender must send.

        Raises ShareExhausted if the free part of the job's tmpfs is too small. `local`: returns a reader of
        the chunks that this node has already; the sender need not send these.
        """
        key = manifest.id
        incoming = self._shards.get(key)
        if incoming is None:
            incoming = self._shards[key] = self._start(manifest, local)
            while len(self._shards) > MAX_INCOMING:
                self.drop(next(iter(self._shards)))
        incoming.copy_of = incoming.copy_of or copy_of
        return sorted(incoming.missing)

    def chunk(self, key: str, index: int) -> Chunk:
        """Return a chunk's entry in the manifest of a shard in transfer. Raises Damaged if the shard or the
        chunk is not expected.
        """
        incoming = self._shards.get(key)
        if incoming is None or not 0 <= index < len(incoming.manifest.chunks):
            raise Damaged(f"chunk {index} of shard {key} is not expected")
        return incoming.manifest.chunks[index]

    def put(self, key: str, index: int, data: digest.Buffer) -> None:
        """Write a chunk of a shard in transfer. Raises Damaged if the bytes do not match the manifest."""
        chunk, incoming = self.chunk(key, index), self._shards[key]
        if len(data) != chunk.length or digest.digest(data) != chunk.digest:
            raise Damaged(f"chunk {chunk.digest} is damaged")
        with self._partial(key).open("r+b") as file:
            os.pwrite(file.fileno(), data, incoming.offsets[index])
        incoming.missing.discard(index)

    def finish(self, key: str, target: Path) -> IncomingShard:
        """Move the file of a completely received shard to `target`. Raises Damaged if a chunk is missing."""
        incoming = self._shards.get(key)
        if incoming is None or incoming.missing:
            raise Damaged(f"shard {key} is not complete")
        del self._shards[key]
        self._partial(key).replace(target)
        return incoming

    def drop(self, key: str) -> None:
        """Remove a shard whose transfer will not be completed."""
        if self._shards.pop(key, None) is not None:
            self._partial(key).unlink(missing_ok=True)

    def _partial(self, key: str) -> Path:
        return self._folder / f".{key}"

    def _start(self, manifest: Manifest, local: Callable[[], ReadLocal]) -> IncomingShard:
        # The writes of the chunks touch the pages, while the next chunks arrive.
        memory.allocate(self._partial(manifest.id), manifest.size, touch=False)
        offsets, at = [], 0
        for chunk in manifest.chunks:
            offsets.append(at)
            at += chunk.length
        incoming = IncomingShard(manifest, set(range(len(manifest.chunks))), offsets)
        read = local()
        with self._partial(manifest.id).open("r+b") as file:
            for index, chunk in enumerate(manifest.chunks):
                if (data := read(chunk.digest)) is not None:
                    os.pwrite(file.fileno(), data, offsets[index])
                    incoming.missing.discard(index)
        return incoming
