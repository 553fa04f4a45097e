"""The record of one shard in a node's memory, and its text in the folder `manifests`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.records import Manifest


class ShardMetadata(NamedTuple):
    """The ranks' report with a generation's shards. All ranks must report the same."""

    world: int
    torch: str
    plan: str
    """Digest of the plan that assigns the shards' content to ranks."""
    last: bool = False
    """True if the job ends with this state."""


@dataclass(slots=True)
class ShardRecord:
    """A complete shard in this node's memory."""

    manifest: Manifest
    buffer: str = ""
    """The buffer of one of this node's ranks that holds the shard; empty if the shard has its own file."""
    metadata: ShardMetadata | None = None
    """The report of the rank that wrote the shard; None if it is not in a buffer."""
    copy_of: str = ""
    """The node whose copy the shard is; empty if it is no copy."""
    given_up: bool = False
    """True if the shard was withdrawn: no watermark will ever need it."""

    @property
    def text(self) -> bytes:
        """The record's text. It leaves `given_up` out: the next agent need not know it."""
        body = {
            "buffer": self.buffer,
            "manifest": self.manifest.text.decode(),
            "metadata": self.metadata,
            "copy_of": self.copy_of,
        }
        return json.dumps(body).encode()


def parse(text: bytes) -> ShardRecord:
    """Parse a record. ValueError, KeyError or TypeError for a malformed text."""
    body = json.loads(text)
    manifest = records.manifest(body["manifest"].encode())
    buffer = str(body["buffer"])
    metadata = ShardMetadata(*body["metadata"]) if buffer else None
    return ShardRecord(manifest, buffer, metadata, str(body.get("copy_of", "")))
