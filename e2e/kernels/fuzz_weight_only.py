"""Random products of w4a16 and w8a16: shapes, strides, alignments, types, tails and threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_workloads.kernels import w4a16, w8a16
from convoy_workloads.kernels.packing import PackedWeights
from convoy_workloads.kernels.threads import ThreadPool
from convoy_workloads.kernels.weight_only import BFLOAT16, FLOAT32, Matrix, Product
from convoy_workloads.kernels.weight_only_twin import Case, from_bfloat16, product, random_case, to_bfloat16
from e2e.kernels.emulation import Emulation
from e2e.kernels.guarded import Guarded

KERNELS = (w4a16.KERNEL, w8a16.KERNEL)
EMULATED = {"amx": Emulation(("-DCONVOY_EMULATE_TILES",), frozenset({"amx_tile", "amx_bf16"}))}
_ROWS = (1, 1, 2, 3, 4, 5, 6, 9, 11, 12, 13, 16, 17, 24, 25, 33, 40)
_TYPES = ((FLOAT32, np.dtype(np.float32)), (BFLOAT16, np.dtype(np.uint16)))
_CANARY = {np.dtype(np.float32): -7.25e11, np.dtype(np.uint16): 0xABCD}
_MOST_BYTES = 1 << 20


class Fuzz:
    """Random products of one kernel. Weights, activations and results lie between guarded pages."""

    def __init__(self, scheme: str, functions: Mapping[str, Product]) -> None:
        self._scheme, self._functions = scheme, functions
        self._weights, self._x, self._y = Guarded(_MOST_BYTES), Guarded(_MOST_BYTES), Guarded(_MOST_BYTES)
        self._pools = [ThreadPool(threads) for threads in (1, 2, 3)]

    def close(self) -> None:
        """Stop the threads."""
        for pool in self._pools:
            pool.close()

    def run(self, random: np.random.Generator) -> str:
        """Compute one random product with each function. Return what is wrong, or an empty text."""
        case = random_case(random, self._scheme, rows=int(random.choice(_ROWS)))
        at_end = bool(random.integers(2))
        packed = _moved(case.packed, self._weights.array(np.uint8, case.packed.tiles.nbytes, at_end=at_end))
        expected, bounds = product(packed, case.x), case.bounds()
        for name, function in self._functions.items():
            wrong = self._run(random, Case(packed, case.x), function, expected, bounds)
            if wrong:
                return f"{self._scheme} {name}: {case}: {wrong}"
        return ""

    def _run(
        self,
        random: np.random.Generator,
        case: Case,
        function: Product,
        expected: npt.NDArray[Any],
        bounds: npt.NDArray[Any],
    ) -> str:
        packed, rows = case.packed, len(case.x)
        _, x, read = _rows(random, self._x, rows, packed.inputs)
        x[...] = to_bfloat16(case.x) if read.type == BFLOAT16 else case.x
        flat, y, written = _rows(random, self._y, rows, packed.outputs)
        function(packed, read, written, self._pools[int(random.integers(len(self._pools)))])
        found = np.array(from_bfloat16(y) if written.type == BFLOAT16 else y, np.float64)
        # Rounding a result to bfloat16 changes it by at most 2^-8 of its size.
        allowed = bounds + (np.abs(expected) / 256 if written.type == BFLOAT16 else 0)
        wrong = np.argwhere(~(np.abs(found - expected) <= allowed))
        if len(wrong):
            row, output = wrong[0]
            return f"result [{row}, {output}] is {found[row, output]} instead of {expected[row, output]}"
        if not _untouched(flat, y, written):
            return "it wrote between the rows of the results"
        chosen = int(random.integers(rows))
        own = np.array(y[chosen])
        alone = Matrix(read.address + chosen * read.stride * x.itemsize, 1, packed.inputs, read.type)
        y[chosen] = _CANARY[y.dtype]
        place = Matrix(
            written.address + chosen * written.stride * y.itemsize, 1, packed.outputs, written.type
        )
        function(packed, alone, place, self._pools[0])
        return "" if np.array_equal(own, y[chosen]) else f"row {chosen} has other bits alone"


def fuzz(name: str, functions: Mapping[str, Product]) -> Fuzz:
    """Return the random products of kernel `name`."""
    return Fuzz(name, functions)


def _moved(packed: PackedWeights, tiles: npt.NDArray[np.uint8]) -> PackedWeights:
    tiles[...] = packed.tiles
    return PackedWeights(packed.scheme, packed.outputs, packed.inputs, packed.group_size, tiles)


def _rows(
    random: np.random.Generator, memory: Guarded, rows: int, width: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Matrix]:
    """Return rows of a random type, stride and address, after the memory that they lie in.

    The memory between the rows is full of canaries.
    """
    kind, dtype = _TYPES[int(random.integers(2))]
    stride = width + int(random.choice((0, 0, 1, 7, 16, 64)))
    flat = memory.array(dtype, (rows - 1) * stride + width, at_end=bool(random.integers(4)))
    flat[...] = _CANARY[dtype]
    shaped = np.lib.stride_tricks.as_strided(
        flat, (rows, width), (stride * dtype.itemsize, dtype.itemsize), writeable=True
    )
    return flat, shaped, Matrix(flat.ctypes.data, rows, stride, kind)


def _untouched(flat: npt.NDArray[Any], y: npt.NDArray[Any], written: Matrix) -> bool:
    """Return True if the memory between the results' rows still holds its canaries."""
    between = np.ones(len(flat), bool)
    for row in range(written.rows):
        between[row * written.stride :][: y.shape[1]] = False
    return bool((flat[between] == np.array(_CANARY[flat.dtype], flat.dtype)).all())
