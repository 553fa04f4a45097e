"""The records of a source, as a build reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy_workloads.engines.aperon.operations import Upsert
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.engines.aperon_index.params import Params

_BATCH_ROWS = 4096
_BATCH_BYTES = 16 << 20


class SourceError(Exception):
    """The source has wrong records or settings. The message names the file or the parameter."""


class SourceAway(Exception):
    """The source cannot be read now. Another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a source."""

    settings: IndexSettings
    """Settings of the index that they need."""
    batches: Iterator[Upsert]
    """The records in parts. Raises SourceError for wrong records or settings, and SourceAway if the source
    cannot be read now.
    """
    stored: bool = False
    """True if the vectors are as an index stores them: for cosine, of length 1."""


def batch_rows(dimension: int) -> int:
    """Return the number of rows of a part."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // (4 * dimension)))


def settings_of(params: Params, dimension: int, where: str) -> IndexSettings:
    """Return the settings of an index of vectors with this dimension. `where`: their place."""
    if params.dimension not in (0, dimension):
        raise SourceError(f"dimension: {params.dimension}, but {where} has vectors of dimension {dimension}")
    index = params.index
    return IndexSettings(dimension, index.metric, params.id_type, params.fields, index.grains, index.dims)
