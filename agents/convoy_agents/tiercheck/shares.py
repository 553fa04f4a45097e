"""What a job's memory on this node was given out for: so many bytes for each purpose, written down beside it.

Who finds that damaged, or lost, counts what lies there: the next agent has to give the memory the size that
it has already, or one that is larger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import structlog

from convoy_agents.tiercheck import memory
from convoy_agents.tiercheck.buffers import owner_of
from convoy_agents.tiercheck.memory import write_atomic
from convoy_controllers.checkpoint import records

OVERHEAD = 8 * 1024 * 1024
"""For records and the file system itself."""
OTHERS = "shards of others"
"""What room is reserved for beside the slots: copies, and what is fetched to be read."""
BUFFERS = "buffers of "
"""Before the kind of slots and the rank."""
FILE = "shares.json"

log = structlog.get_logger()


def whole(shares: Mapping[str, int]) -> int:
    """Bytes for these purposes, with manifests, of some 50 bytes for each chunk of 4 MiB, and records."""
    size = sum(shares.values())
    return size + size // 8192 + OVERHEAD


def write(folder: Path, shares: Mapping[str, int]) -> None:
    """All of it or nothing. OSError."""
    write_atomic(folder / FILE, records.seal(json.dumps(shares).encode()))


def read(folder: Path) -> dict[str, int]:
    """What was written last; where that cannot be read, what lies there. OSError when nothing can be read."""
    try:
        found = json.loads(records.unseal((folder / FILE).read_bytes()))
        return {str(purpose): int(share) for purpose, share in found.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        shares = measure(folder)
        if sum(shares.values()):
            log.warning("what memory was given out for is counted anew", folder=folder.name, why=str(error))
        return shares


def measure(folder: Path) -> dict[str, int]:
    """The bytes that lie there, by purpose. OSError."""
    found: dict[str, int] = {}
    for path in _files(folder / "buffers"):
        owner, kind = owner_of(path.name)
        purpose = f"{BUFFERS}{kind}{owner}"
        found[purpose] = found.get(purpose, 0) + _pages(path)
    slots, others = sum(found.values()), sum(map(_pages, _files(folder / "files")))
    return {**found, OTHERS: max(others, memory.used_bytes(folder) - slots - OVERHEAD)}


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def _pages(path: Path) -> int:
    """Bytes, of which a rank cannot have made more than there are, as it can of a file's length."""
    return path.stat().st_blocks * 512
