"""The arrays that the functions of the kernel `hntl_scan` read, checked at the door.

Two matrices hold int16 numbers in steps of 1/16384, arranged as the products of pairs read them: `rotation`
in tiles of up to 64 outputs, `bases` with one tile for each grain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from convoy_workloads.kernels.ctypes_kernel import check_array
from convoy_workloads.kernels.errors import InvalidInput

LANES = 32
"""Rows of a block, and partial sums of a distance."""
TILE = 64
"""Most outputs of a matrix tile, and most local coordinates."""
UNIT = 16384
"""Steps of a matrix entry per 1."""
L2, NEGATIVE_IP = 0, 1
"""Codes of the metrics: squared Euclidean distance, and the inner product with a minus sign."""
Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


def rounded_up(value: int, multiple: int) -> int:
    """Return the smallest multiple that is not below `value`."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class HntlArrays:
    """An index. Rows are ordered by grain, and the blocks of a grain hold 32 rows each."""

    metric: int
    dims: int
    """Local coordinates, a multiple of 4."""
    mean: Floats
    """[dimension]; queries are compared after its subtraction."""
    rotation: npt.NDArray[np.int16] | None
    """[pairs * frame * 2], from `tiled`; None if the frame's coordinates are the inputs."""
    centroids: Floats
    """[frame, grains rounded up to 16]"""
    bases: npt.NDArray[np.int16]
    """[grains, frame / 2, dims rounded up to 16, 2], from `paired`."""
    offsets: Floats
    """[grains, dims rounded up to 16], local coordinates of each grain's centre."""
    scales: Floats
    """[grains], the size of one step of a code."""
    starts: npt.NDArray[np.int64]
    """[grains + 1], the first row of each grain."""
    blocks: npt.NDArray[np.int64]
    """[grains + 1], the first block of each grain."""
    codes: npt.NDArray[np.uint8]
    """[blocks, dims / 4, 32, 4], from `blocked`; 128 stands for 0."""
    biases: Floats
    """[blocks, 32], squared distances of rows to their grain's centre."""
    vectors: Floats
    """[rows, dimension]"""
    order: npt.NDArray[np.uint32]
    """[rows], ranks of the rows' ids, which break ties of distances."""

    def __post_init__(self) -> None:
        """Check all arrays. Raises InvalidInput, with the name of the first invalid array."""
        if self.metric not in (L2, NEGATIVE_IP):
            raise InvalidInput(f"metric: {self.metric} is not 0 or 1")
        if not 4 <= self.dims <= TILE or self.dims % 4:
            raise InvalidInput(f"dims: {self.dims} is no multiple of 4 from 4 to {TILE}")
        check_array("centroids", self.centroids, np.float32, (None, None))
        check_array("starts", self.starts, np.int64, (None,))
        dimension, frame, grains = self.dimension, self.frame, self.grains
        lanes, grain_lanes = rounded_up(self.dims, 16), rounded_up(grains, 16)
        if (
            not dimension
            or not grains
            or frame < 16
            or frame % 16
            or (self.rotation is None and frame < dimension)
        ):
            raise InvalidInput(
                f"centroids: frame {frame} does not fit {dimension} inputs and {grains} grains"
            )
        check_array("mean", self.mean, np.float32, (dimension,))
        if self.rotation is not None:
            size = rounded_up(dimension, 2) * frame
            check_array("rotation", self.rotation, np.int16, (size,), alignment=2)
        check_array("centroids", self.centroids, np.float32, (frame, grain_lanes))
        check_array("bases", self.bases, np.int16, (grains, frame // 2, lanes, 2))
        check_array("offsets", self.offsets, np.float32, (grains, lanes))
        check_array("scales", self.scales, np.float32, (grains,))
        check_array("blocks", self.blocks, np.int64, (grains + 1,))
        check_array("vectors", self.vectors, np.float32, (None, dimension))
        sizes = np.diff(self.starts)
        if self.starts[0] or self.starts[-1] != self.rows or self.rows >= 2**32 or (sizes < 0).any():
            raise InvalidInput(f"starts: not the first rows of grains of {self.rows} rows")
        if self.blocks[0] or not np.array_equal(np.diff(self.blocks), -(-sizes // LANES)):
            raise InvalidInput("blocks: not the first blocks of the grains")
        count = int(self.blocks[-1])
        check_array("codes", self.codes, np.uint8, (count, self.dims // 4, LANES, 4))
        check_array("biases", self.biases, np.float32, (count, LANES))
        check_array("order", self.order, np.uint32, (self.rows,))

    @property
    def dimension(self) -> int:
        """Return the number of inputs of a vector."""
        return len(self.mean)

    @property
    def frame(self) -> int:
        """Return the number of global coordinates."""
        return int(self.centroids.shape[0])

    @property
    def grains(self) -> int:
        """Return the number of grains."""
        return len(self.starts) - 1

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.vectors)


class ScanRequest(NamedTuple):
    """The arguments of `scan`."""

    queries: Floats
    """[items, dimension]"""
    allowed: npt.NDArray[np.uint32]
    """[blocks], a bit for each row that may be returned."""
    centroid_norms: Floats
    """[grains rounded up to 16], squared lengths of the centroids. An infinite one hides its grain."""
    probes: int
    candidates: int
    results: int


class ExactRequest(NamedTuple):
    """The arguments of `exact`."""

    queries: Floats
    vectors: Floats
    order: npt.NDArray[np.uint32]
    chosen: npt.NDArray[np.int64] | None
    """The rows to compare with; None for all rows."""
    metric: int
    results: int


class Found(NamedTuple):
    """Results, the nearest first; ties are in the order of ids."""

    distances: Floats
    """[items, results]; infinite where there are fewer results."""
    rows: npt.NDArray[np.int64]
    """[items, results]; -1 where there are fewer results."""
    scanned: npt.NDArray[np.int64]
    """[items], numbers of rows whose scores or distances were computed."""


def check_scan(arrays: HntlArrays, request: ScanRequest) -> None:
    """Raise InvalidInput if a request does not fit the arrays."""
    check_array("queries", request.queries, np.float32, (None, arrays.dimension))
    check_array("allowed", request.allowed, np.uint32, (int(arrays.blocks[-1]),))
    check_array("centroid_norms", request.centroid_norms, np.float32, (rounded_up(arrays.grains, 16),))
    for name in ("probes", "candidates", "results"):
        _positive(name, getattr(request, name))


def check_exact(request: ExactRequest) -> None:
    """Raise InvalidInput if the arguments do not fit together."""
    check_array("queries", request.queries, np.float32, (None, None))
    check_array("vectors", request.vectors, np.float32, (None, request.queries.shape[1]))
    check_array("order", request.order, np.uint32, (len(request.vectors),))
    if request.chosen is not None:
        check_array("chosen", request.chosen, np.int64, (None,))
        if len(request.chosen) and not (
            int(request.chosen.min()) >= 0 and int(request.chosen.max()) < len(request.vectors)
        ):
            raise InvalidInput(f"chosen: a row is not between 0 and {len(request.vectors) - 1}")
    if request.metric not in (L2, NEGATIVE_IP):
        raise InvalidInput(f"metric: {request.metric} is not 0 or 1")
    _positive("results", request.results)


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise InvalidInput(f"{name}: {value} is not positive")


def tiled(matrix: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Return a matrix [inputs, outputs] as the rotation's tiles. `outputs` is a multiple of 16."""
    whole = paired(matrix)
    parts = [whole[:, at : at + TILE].reshape(-1) for at in range(0, whole.shape[1], TILE)]
    return np.concatenate(parts)


def untiled(flat: npt.NDArray[np.int16], frame: int) -> npt.NDArray[np.int16]:
    """Return the matrix [inputs rounded up to 2, outputs] of a rotation's tiles."""
    pairs = len(flat) // frame // 2
    parts, at = [], 0
    for first in range(0, frame, TILE):
        width = min(TILE, frame - first)
        parts.append(flat[at : at + pairs * width * 2].reshape(pairs, width, 2))
        at += pairs * width * 2
    return unpaired(np.concatenate(parts, axis=1))


def paired(matrix: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Return a matrix [..., inputs, outputs] as [..., inputs / 2, outputs, 2]."""
    if matrix.shape[-2] % 2:
        matrix = np.concatenate([matrix, np.zeros_like(matrix[..., :1, :])], axis=-2)
    split = matrix.reshape(*matrix.shape[:-2], -1, 2, matrix.shape[-1])
    return np.ascontiguousarray(np.swapaxes(split, -1, -2))


def unpaired(pairs: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Return the matrix [..., inputs, outputs] of `paired`."""
    turned = np.swapaxes(pairs, -1, -2)
    return np.ascontiguousarray(turned.reshape(*turned.shape[:-3], -1, turned.shape[-1]))


def blocked(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the codes [rows, dims] of one grain as blocks [blocks, dims / 4, 32, 4]."""
    rows, dims = codes.shape
    padded = np.full((rounded_up(rows, LANES), dims), 128, np.uint8)
    padded[:rows] = codes
    return np.ascontiguousarray(padded.reshape(-1, LANES, dims // 4, 4).transpose(0, 2, 1, 3))


def unblocked(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the codes [blocks * 32, dims] of blocks."""
    dims = blocks.shape[1] * 4
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3).reshape(len(blocks) * LANES, dims))
