"""A segment: rows that do not change, with the model that codes them. Deleted rows are marked outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_workloads.engines.aperon import columns as metadata
from convoy_workloads.engines.aperon.coding import arranged, code
from convoy_workloads.engines.aperon.columns import Column, Record
from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.filters import Filter
from convoy_workloads.engines.aperon.frame import Frame
from convoy_workloads.engines.aperon.ids import Id, IdColumn, ranks
from convoy_workloads.engines.aperon.model import GrainModel
from convoy_workloads.engines.aperon.segment_file import read_arrays, write_arrays
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.engines.aperon.storage import Storage
from convoy_workloads.kernels.errors import KernelError
from convoy_workloads.kernels.hntl_arrays import (
    LANES,
    Floats,
    HntlArrays,
    unpaired,
    untiled,
)

Array = npt.NDArray[Any]
Bits = npt.NDArray[np.uint32]
_FILTERS = 32
"""Filters whose bits a segment remembers."""
_KERNEL_ARRAYS = (
    "mean", "centroids", "bases", "offsets", "scales", "starts", "blocks", "codes", "biases", "vectors",
    "order",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """Records for a segment."""

    ids: list[Id]
    vectors: Floats
    records: Sequence[Record]


@dataclass(frozen=True, eq=False)
class Segment:
    """The arrays of a segment."""

    name: str
    path: Path
    arrays: HntlArrays
    ids: IdColumn
    columns: dict[str, Column]
    fitted_rows: int
    """Rows that the model was fitted to."""
    fitted_residual: float
    residual: float
    """Share of the rows' squared distances to their centres that the codes do not capture, from 0 to 1."""

    @property
    def rows(self) -> int:
        """Return the number of rows, deleted ones among them."""
        return self.arrays.rows

    @cached_property
    def centroid_norms(self) -> Floats:
        """Return the squared lengths of the centres; infinite for places without a grain."""
        norms: Floats = np.einsum("cg,cg->g", self.arrays.centroids, self.arrays.centroids)
        norms[self.arrays.grains :] = np.inf
        return norms

    @cached_property
    def every(self) -> Bits:
        """Return a set bit for each row, by blocks."""
        return self.bits(np.ones(self.rows, np.bool_))

    def filter_bits(self, chosen: Filter) -> Bits:
        """Return the bits of the rows that fulfil a filter. The last filters are remembered."""
        found = self._filters.get(chosen.key)
        if found is None:
            found = self.bits(chosen.mask(self.columns, self.rows))
            if len(self._filters) >= _FILTERS:
                self._filters.clear()
            self._filters[chosen.key] = found
        return found

    @cached_property
    def _filters(self) -> dict[str, Bits]:
        return {}

    def slots(self, rows: Array) -> npt.NDArray[np.int64]:
        """Return the positions of rows among the lanes of all blocks."""
        grains = np.searchsorted(self.arrays.starts, rows, side="right") - 1
        found: npt.NDArray[np.int64] = self.arrays.blocks[grains] * LANES + rows - self.arrays.starts[grains]
        return found

    def bits(self, mask: npt.NDArray[np.bool_]) -> Bits:
        """Return a mask of rows as bits, by blocks."""
        lanes = np.zeros(int(self.arrays.blocks[-1]) * LANES, np.bool_)
        lanes[self._all_slots()[mask]] = True
        return np.packbits(lanes, bitorder="little").view("<u4")

    def rows_of(self, bits: Bits) -> npt.NDArray[np.int64]:
        """Return the rows whose bits are set."""
        lanes = np.unpackbits(bits.view(np.uint8), bitorder="little")
        return np.flatnonzero(lanes[self._all_slots()])

    def _all_slots(self) -> npt.NDArray[np.int64]:
        sizes = np.diff(self.arrays.starts)
        shift = self.arrays.blocks[:-1] * LANES - self.arrays.starts[:-1]
        return np.arange(self.rows) + np.repeat(shift, sizes)

    def norms_with(self, allowed: Bits) -> Floats:
        """Return the centres' squared lengths; infinite for grains without an allowed row."""
        counts = np.concatenate([[0], np.cumsum(np.bitwise_count(allowed), dtype=np.int64)])
        empty = counts[self.arrays.blocks[1:]] == counts[self.arrays.blocks[:-1]]
        norms = self.centroid_norms.copy()
        norms[: self.arrays.grains][empty] = np.inf
        return norms

    def model(self) -> GrainModel:
        """Return the model, to code other rows with it."""
        arrays = self.arrays
        axes = None
        if arrays.rotation is not None:
            axes = untiled(arrays.rotation, arrays.frame)[: arrays.dimension]
        frame = Frame(np.array(arrays.mean), axes, arrays.frame)
        centres = np.ascontiguousarray(arrays.centroids[:, : arrays.grains].T)
        bases = unpaired(arrays.bases)[:, :, : arrays.dims]
        return GrainModel(frame, centres, bases, self.fitted_rows, self.fitted_residual)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the segment by part."""
        arrays = self.arrays
        rotation = 0 if arrays.rotation is None else arrays.rotation.nbytes
        return {
            "vectors": arrays.vectors.nbytes,
            "codes": arrays.codes.nbytes + arrays.biases.nbytes,
            "bases": arrays.bases.nbytes + arrays.centroids.nbytes + arrays.offsets.nbytes + rotation,
            "ids": arrays.order.nbytes + self.ids.nbytes,
            "metadata": sum(one.values.nbytes + one.present.nbytes for one in self.columns.values()),
        }


def write_segment(
    storage: Storage, path: Path, settings: IndexSettings, rows: Rows, model: GrainModel | None = None
) -> Segment:
    """Code rows, write them as a segment, and open it. `model`: one that may be kept if it fits."""
    coded = code(rows.vectors, settings, model)
    ids = [rows.ids[row] for row in coded.rows]
    vectors = np.ascontiguousarray(rows.vectors[coded.rows])
    arrays = arranged(coded, settings, vectors, ranks(ids))
    columns = metadata.columns_of([rows.records[row] for row in coded.rows], settings.fields)
    stored: dict[str, Array] = {name: getattr(arrays, name) for name in _KERNEL_ARRAYS}
    if arrays.rotation is not None:
        stored["rotation"] = arrays.rotation
    stored |= IdColumn.arrays_of(ids) | metadata.arrays_of(columns)
    values = {
        "metric": arrays.metric,
        "dims": arrays.dims,
        "fitted_rows": coded.model.rows,
        "fitted_residual": coded.model.residual,
        "residual": coded.residual,
    }
    write_arrays(storage, path, values, stored)
    return open_segment(path, settings)


def open_segment(path: Path, settings: IndexSettings) -> Segment:
    """Open the file of a segment. Raises CorruptFile if the file is missing or damaged."""
    values, arrays = read_arrays(path)
    try:
        kernel = HntlArrays(
            metric=values["metric"],
            dims=values["dims"],
            rotation=arrays.get("rotation"),
            **{name: arrays[name] for name in _KERNEL_ARRAYS},
        )
        columns = metadata.columns_from(arrays, settings.fields)
        ids = IdColumn(arrays)
    except (KeyError, KernelError, ValueError) as error:
        raise CorruptFile(path, f"its arrays do not fit together: {error}") from error
    if kernel.dimension != settings.dimension or len(ids) != kernel.rows:
        raise CorruptFile(path, "it belongs to an index with other settings")
    return Segment(
        path.stem,
        path,
        kernel,
        ids,
        columns,
        values["fitted_rows"],
        values["fitted_residual"],
        values["residual"],
    )
