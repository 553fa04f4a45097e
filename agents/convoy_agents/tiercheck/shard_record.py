"""The record of one shard in a node's memory, and the record's text in the folder `manifests`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.records import Manifest


class ShardMetadata(NamedTuple):
    """The facts about a generation that each rank reports with its shard. All ranks must report the same
    facts about one generation.
    """

    world: int
    torch: str
    plan: str
    """Digest of the save plan, which assigns the content of the generation to ranks."""
    last: bool = False
    """True if this is the last save of the job."""


@dataclass(slots=True)
class ShardRecord:
    """One shard in this node's memory that is complete: sealed by a rank of this node, or completely
    received.
    """

    manifest: Manifest
    buffer: str = ""
    """Name of the buffer that holds the shard; empty if the shard has a file of its own."""
    metadata: ShardMetadata | None = None
    """The facts that the rank reported with the shard; None if the shard is in no buffer of this node."""
    copy_of: str = ""
    """The node for which this node keeps the shard as a copy; empty if the shard is no copy."""
    given_up: bool = False
    """True if the shard was given up, because its generation will not be committed."""

    @property
    def text(self) -> bytes:
        """The stored form of the record. It omits `given_up`, which the next agent does not need."""
        body = {
            "buffer": self.buffer,
            "manifest": self.manifest.text.decode(),
            "metadata": self.metadata,
            "copy_of": self.copy_of,
        }
        return json.dumps(body).encode()


def parse(text: bytes) -> ShardRecord:
    """Parse the stored form of a record. Raises ValueError, KeyError or TypeError if it is malformed."""
    body = json.loads(text)
    manifest = records.parse_manifest(body["manifest"].encode())
    buffer = str(body["buffer"])
    metadata = ShardMetadata(*body["metadata"]) if buffer else None
    return ShardRecord(manifest, buffer, metadata, str(body.get("copy_of", "")))
