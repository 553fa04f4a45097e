"""The record of one shard in a node's memory, and its text in the folder `manifests`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.records import Manifest


class ShardMetadata(NamedTuple):
    """The ranks' report of a generation beside its shards; all ranks must report the same."""

    world: int
    torch: str
    plan: str
    """Digest of the plan that says which rank writes what."""
    last: bool = False
    """True when the job ends with this state."""


@dataclass(slots=True)
class ShardRecord:
    """One shard that lies whole in this node's memory."""

    manifest: Manifest
    buffer: str = ""
    """The buffer, of one of this node's own ranks, that has the shard; empty when it has its own file."""
    metadata: ShardMetadata | None = None
    """The report of the rank that wrote the shard; None unless it lies in a buffer."""
    copy_of: str = ""
    """The node that counts on the shard as its copy; empty without one."""
    given_up: bool = False
    """True when the shard was withdrawn: no watermark will come to stand on it."""

    @property
    def text(self) -> bytes:
        """The record as it is written down. `given_up` is not: the next agent goes on without it."""
        body = {
            "buffer": self.buffer,
            "manifest": self.manifest.text.decode(),
            "metadata": self.metadata,
            "copy_of": self.copy_of,
        }
        return json.dumps(body).encode()


def parse(text: bytes) -> ShardRecord:
    """Read a record. ValueError, KeyError or TypeError for a malformed text."""
    body = json.loads(text)
    manifest = records.manifest(body["manifest"].encode())
    buffer = str(body["buffer"])
    metadata = ShardMetadata(*body["metadata"]) if buffer else None
    return ShardRecord(manifest, buffer, metadata, str(body.get("copy_of", "")))
