"""The places of the files in a tar archive."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Stamp(NamedTuple):
    """The size and the modification time of an archive. An index is valid for one stamp."""

    size: int
    mtime_ns: int

    @staticmethod
    def of(fd: int) -> Stamp:
        """Return the stamp of an open file."""
        found = os.fstat(fd)
        return Stamp(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class TarIndex:
    """The name, the offset and the size of each file, in the order of the archive."""

    names: list[str] = field(default_factory=list)
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    """First byte of each file's data."""
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of entries that are no files, such as `{"directories": 3}`."""
    replaced: int = 0
    """Number of files that a later entry of the same name replaces, as `tar` does when it extracts."""
