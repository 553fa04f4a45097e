"""The bytes of a job's memory by purpose, and the file in the job's memory that stores them.

The next agent gives the job the memory that this file states. If the file is damaged or lost, that agent
measures the files of the shards instead. The job must not get less memory than its files use already.
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
"""Bytes added to each share for records and for the file system itself."""
OTHERS = "shards of others"
"""Purpose of the memory outside the buffers: copies for other nodes, and fetched shards."""
BUFFERS = "buffers of "
"""Prefix of the purpose of a rank's buffers. The kind of buffer and the rank follow."""
FILE = "shares.json"

log = structlog.get_logger()


def total_size(shares: Mapping[str, int]) -> int:
    """Return the bytes of the whole share: the sum of all purposes, 1/8192 of it for manifests, and
    OVERHEAD.

    A manifest takes about 50 bytes per chunk of 4 MiB.
    """
    size = sum(shares.values())
    return size + size // 8192 + OVERHEAD


def write(folder: Path, shares: Mapping[str, int]) -> None:
    """Write the bytes by purpose to the file, atomically. Raises OSError if the file cannot be written."""
    write_atomic(folder / FILE, records.seal(json.dumps(shares).encode()))


def read(folder: Path) -> dict[str, int]:
    """Read the bytes by purpose. If the file is missing or damaged, return the result of `measure`. Raises
    OSError if that fails.
    """
    try:
        found = json.loads(records.unseal((folder / FILE).read_bytes()))
        return {str(purpose): int(share) for purpose, share in found.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        shares = measure(folder)
        if sum(shares.values()):
            log.warning(
                "the record of the job's memory cannot be read; measuring it instead",
                folder=folder.name,
                why=str(error),
            )
        return shares


def measure(folder: Path) -> dict[str, int]:
    """Measure the existing files. Return their bytes by purpose. Raises OSError if the folder cannot be
    read.
    """
    found: dict[str, int] = {}
    for path in _files(folder / "buffers"):
        owner, kind = owner_of(path.name)
        purpose = f"{BUFFERS}{kind}{owner}"
        found[purpose] = found.get(purpose, 0) + _pages(path)
    buffers, others = sum(found.values()), sum(map(_pages, _files(folder / "files")))
    return {**found, OTHERS: max(others, memory.used_bytes(folder) - buffers - OVERHEAD)}


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def _pages(path: Path) -> int:
    """Return the allocated bytes of a file (`st_blocks` x 512). A rank can inflate the length with a sparse
    file, but not this value.
    """
    return path.stat().st_blocks * 512
