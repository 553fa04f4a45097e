"""The manifest: the list of an index's segments, and the number of the last operation that they contain.

Manifests are numbered files that do not change. The last two are kept, with all files that either names and
all log records after the older one. So an index whose last manifest or segment is damaged opens from the one
before, and loses nothing: the log has the rest.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy_workloads.engines.aperon.errors import AperonError, CorruptFile
from convoy_workloads.engines.aperon.settings import IndexSettings, SearchSettings
from convoy_workloads.engines.aperon.storage import Storage

FORMAT = 1
KEPT = 2
"""Number of manifests that stay."""
_NAME = re.compile(r"manifest-(\d+)\.json")
_OWN = re.compile(r"manifest-\d+\.json|segment-\d+(-\d+\.live|\.seg)|.*\.tmp")
"""Names of an index's files. A copy that a person has made in the folder is none, and stays."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment of a manifest."""

    name: str
    tombstones: str
    """Name of the file with the rows that are not deleted; empty if none is."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the segment's files."""
        own = f"{self.name}.seg"
        return (own, self.tombstones) if self.tombstones else (own,)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a manifest: settings of the index, its segments, and the first log file after them."""

    number: int
    settings: IndexSettings
    search: SearchSettings
    sequence: int
    """Number of the last operation that the segments contain."""
    next_file: int
    """Number for the next segment or file of tombstones."""
    segments: tuple[SegmentEntry, ...]

    @property
    def files(self) -> set[str]:
        """Return the names of all files that the manifest needs."""
        return {name for one in self.segments for name in one.files}


def manifest_path(folder: Path, number: int) -> Path:
    """Return the path of a manifest."""
    return folder / f"manifest-{number:010d}.json"


def manifest_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the numbers and paths of the manifests in a folder, the last one first."""
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("manifest-*.json"))
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def write_manifest(storage: Storage, folder: Path, manifest: Manifest) -> None:
    """Write a manifest. From then on it is the one that opens."""
    body = json.dumps(
        {
            "format": FORMAT,
            "number": manifest.number,
            "settings": manifest.settings.as_json(),
            "search": manifest.search.as_json(),
            "sequence": manifest.sequence,
            "next_file": manifest.next_file,
            "segments": [{"name": one.name, "tombstones": one.tombstones} for one in manifest.segments],
        }
    )
    text = json.dumps({"crc32": zlib.crc32(body.encode()), "body": body})
    storage.write(manifest_path(folder, manifest.number), [text.encode()])


def read_manifest(path: Path) -> Manifest:
    """Return the contents of a manifest. Raises CorruptFile if the file is missing or damaged."""
    try:
        outer = json.loads(path.read_bytes())
        body = outer["body"]
        if zlib.crc32(body.encode()) != outer["crc32"]:
            raise CorruptFile(path, "it has another checksum than when it was written")
        raw: dict[str, Any] = json.loads(body)
        if raw["format"] != FORMAT:
            raise CorruptFile(path, f"format {raw['format']}, but this program reads format {FORMAT}")
        return Manifest(
            raw["number"],
            IndexSettings(**raw["settings"]),
            SearchSettings(**raw["search"]),
            raw["sequence"],
            raw["next_file"],
            tuple(SegmentEntry(one["name"], one["tombstones"]) for one in raw["segments"]),
        )
    except CorruptFile:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AperonError) as error:
        raise CorruptFile(path, f"truncated, or not a manifest: {error}") from error


def obsolete_files(folder: Path, manifests: Sequence[Manifest]) -> list[Path]:
    """Return the files of an index that none of the manifests needs. Logs are not among them."""
    needed = {manifest_path(folder, one.number).name for one in manifests}
    for one in manifests:
        needed |= one.files
    return [
        path for path in sorted(folder.iterdir()) if _OWN.fullmatch(path.name) and path.name not in needed
    ]
