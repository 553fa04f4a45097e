"""The settings of an index, which are fixed when it is made, those of a search, and those of a process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.kernels.hntl_arrays import TILE

Metric = Literal["l2", "ip", "cosine"]
IdType = Literal["string", "uint64"]
FieldType = Literal["keyword", "integer", "float", "boolean"]
Fsync = Literal["always", "interval", "never"]
MAX_DIMENSION = 16_384
MAX_FIELDS = 64
MAX_RESULTS = 10_000
"""Most results of a query."""
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings that an index keeps for its life."""

    dimension: int
    metric: Metric = "l2"
    id_type: IdType = "string"
    """`string`: 1 to 512 bytes of UTF-8, the default, because JSON readers lose digits of large numbers.
    `uint64`: whole numbers from 0 to 2^64 - 1.
    """
    fields: Mapping[str, FieldType] = field(default_factory=dict)
    """Types of the metadata fields, by name. Records and filters may use no others."""
    grains: int = 0
    """Grains of a segment; 0: one for each 1000 rows."""
    dims: int = 0
    """Local coordinates, a multiple of 4 up to 64; 0: chosen by the variance that they keep."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the settings. Raises InvalidInput."""
        _integer("dimension", self.dimension, 1, MAX_DIMENSION)
        _one_of("metric", self.metric, Metric)
        _one_of("id_type", self.id_type, IdType)
        _integer("grains", self.grains, 0, 1_000_000)
        _integer("dims", self.dims, 0, TILE)
        if self.dims % 4:
            raise InvalidInput("dims", f"{self.dims} is no multiple of 4")
        _integer("seed", self.seed, 0, 2**32 - 1)
        if len(self.fields) > MAX_FIELDS:
            raise InvalidInput("fields", f"{len(self.fields)} fields are more than {MAX_FIELDS}")
        for name, kind in self.fields.items():
            if not isinstance(name, str) or not _FIELD_NAME.fullmatch(name):
                raise InvalidInput(f"fields.{name}", f"the name does not match {_FIELD_NAME.pattern}")
            _one_of(f"fields.{name}", kind, FieldType)
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    def as_json(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return {name: dict(value) if name == "fields" else value for name, value in self._items()}

    def _items(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__slots__]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Settings of a search. `VectorIndex.tune` changes the index's own."""

    nprobe: int = 8
    """Grains of each segment that a query scans; more, in proportion, if a filter leaves few rows."""
    candidates: int = 50
    """Best scores of each segment for which exact distances are computed. At least the number of results is
    used.
    """

    def __post_init__(self) -> None:
        """Check the settings. Raises InvalidInput."""
        _integer("nprobe", self.nprobe, 1, 2**31)
        _integer("candidates", self.candidates, 1, 2**31)

    def as_json(self) -> dict[str, int]:
        """Return the settings as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a process that opens an index."""

    fsync: Fsync = "always"
    """`always`: an operation is on the disk before the call returns. `interval`: at the latest
    `fsync_seconds` after, if there are further operations or calls of `sync`. `never`: when the system
    writes it; a crash of the process alone loses nothing.
    """
    fsync_seconds: float = 1.0
    flush_rows: int = 2048
    """Rows in memory from which `maintain` makes a segment. They are searched exactly, so more rows make
    searches slower.
    """
    most_segments: int = 8
    """Segments from which `maintain` merges some of them."""
    most_deleted: float = 0.2
    """Share of deleted rows from which `maintain` rewrites a segment."""
    exact_rows: int = 1000
    """Rows that pass a filter up to which a search compares all of them exactly."""
    threads: int = 1
    """Threads of a search; 0: as many as the container's CPU quota allows."""
    kernel: str = "auto"
    """Instruction set of the kernel, or `twin`."""

    def __post_init__(self) -> None:
        """Check the options. Raises InvalidInput."""
        _one_of("fsync", self.fsync, Fsync)
        _integer("flush_rows", self.flush_rows, 1, 1_000_000)
        _integer("most_segments", self.most_segments, 1, 1000)
        _integer("exact_rows", self.exact_rows, 0, 10_000_000)
        _integer("threads", self.threads, 0, 256)
        if not 0 < self.most_deleted <= 1:
            raise InvalidInput("most_deleted", f"{self.most_deleted} is not above 0 and at most 1")
        if not 0 < self.fsync_seconds <= 3600:
            raise InvalidInput("fsync_seconds", f"{self.fsync_seconds} is not above 0 and at most 3600")


def _integer(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(name, f"{shown(value)} is no whole number from {least} to {most}")


def _one_of(name: str, value: Any, allowed: Any) -> None:
    if value not in get_args(allowed):
        raise InvalidInput(name, f"{shown(value)} is not one of: {', '.join(get_args(allowed))}")
