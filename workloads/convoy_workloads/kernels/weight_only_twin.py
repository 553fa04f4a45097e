"""The numpy twin of the kernels w4a16 and w8a16: the fall-back without a compiler, and the oracle with which
a loaded kernel is compared.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy_workloads.kernels.dispatch import COMPARED_SHAPES
from convoy_workloads.kernels.packing import BITS, PackedWeights, dequantise, pack, unpack
from convoy_workloads.kernels.threads import ThreadPool
from convoy_workloads.kernels.weight_only import BFLOAT16, FLOAT32, Matrix, Product

TOLERANCE = 1e-6
"""Largest difference from the twin, relative to the sum of the magnitudes of a result's terms."""
_OUTPUTS_AT_ONCE = 256


def to_bfloat16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 values, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the fp32 values of bfloat16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def product(packed: PackedWeights, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x W' for fp32 activations [rows, inputs], which are rounded to bfloat16. Sums are fp64."""
    rounded = from_bfloat16(to_bfloat16(x)).astype(np.float64)
    found = np.empty((len(x), packed.outputs), np.float32)
    for first in range(0, packed.outputs, _OUTPUTS_AT_ONCE):
        last = min(first + _OUTPUTS_AT_ONCE, packed.outputs)
        weights = dequantise(packed, first, last).astype(np.float64)
        with np.errstate(invalid="ignore"):
            for row, y in zip(rounded, found, strict=True):
                # One row at a time, so that its bits do not depend on the other rows.
                y[first:last] = weights @ row
    return found


def twin(packed: PackedWeights, x: Matrix, y: Matrix, _: ThreadPool) -> None:
    """Write the product of activations with packed weights to the results."""
    found = product(packed, read(x, packed.inputs))
    target = _memory(y, packed.outputs)
    target[...] = to_bfloat16(found) if y.type == BFLOAT16 else found


def read(x: Matrix, width: int) -> NDArray[np.float32]:
    """Return the rows of a matrix as fp32 values."""
    found = _memory(x, width)
    return from_bfloat16(found) if x.type == BFLOAT16 else found


def _memory(x: Matrix, width: int) -> NDArray[Any]:
    kind = ctypes.c_uint16 if x.type == BFLOAT16 else ctypes.c_float
    size = (x.rows - 1) * x.stride + width if x.rows else 0
    flat = np.ctypeslib.as_array((kind * size).from_address(x.address))
    item = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (x.rows, width), (x.stride * item, item))


@dataclass(frozen=True, slots=True)
class Case:
    """A random product."""

    packed: PackedWeights
    x: NDArray[np.float32]

    def __str__(self) -> str:
        rows, (n, k) = len(self.x), (self.packed.outputs, self.packed.inputs)
        return f"{rows} rows, {n} outputs, {k} inputs, groups of {self.packed.group_size}"

    def bounds(self) -> NDArray[np.float64]:
        """Return the largest allowed differences [rows, outputs].

        A kernel sums codes and zero points around the middle of the codes, so terms of both count.
        """
        codes, scales, zeros = unpack(self.packed)
        middle = 2.0 ** (BITS[self.packed.scheme] - 1)
        by_group = np.arange(self.packed.inputs) // self.packed.group_size
        size = np.abs(codes - middle) + np.abs(zeros - middle)[:, by_group] + 1
        size *= np.abs(scales.astype(np.float64))[:, by_group]
        found: NDArray[np.float64] = TOLERANCE * (np.abs(self.x.astype(np.float64)) @ size.T) + 1e-30
        return found


def random_case(random: np.random.Generator, scheme: str, *, rows: int = 0, most: int = 96) -> Case:
    """Return a random product with at most `most` outputs. `rows` 0: a random number."""
    group = int(random.choice((32, 64, 96, 128, 160, 256)))
    outputs, inputs = int(random.integers(1, most + 1)), int(random.integers(1, 400))
    groups = -(-inputs // group)
    packed = pack(
        scheme,
        random.integers(0, 1 << BITS[scheme], (outputs, inputs), np.uint8),
        (random.random((outputs, groups)) * 0.02 + 0.001).astype(np.float16),
        random.integers(0, 1 << BITS[scheme], (outputs, groups), np.uint8),
        group,
    )
    rows = rows or int(random.choice((1, 2, 3, 4, 5, 7, 8, 12, 13, 25)))
    return Case(packed, random.normal(0.3, 1.0, (rows, inputs)).astype(np.float32))


def cases(scheme: str) -> Iterator[Case]:
    """Yield the products for which a loaded kernel is compared with its twin."""
    random = np.random.default_rng(COMPARED_SHAPES)
    for number in range(COMPARED_SHAPES):
        yield random_case(random, scheme, rows=1 + number % 4 if number < 16 else 0)


def compare(scheme: str) -> Callable[[Product], str]:
    """Return the comparison of a kernel's function with the twin. Its result is empty if they agree."""

    def compared(function: Product) -> str:
        one = ThreadPool(1)
        for case in cases(scheme):
            if differs := difference(case, function, one):
                return f"{case}: {differs}"
        return ""

    return compared


def difference(case: Case, function: Product, pool: ThreadPool) -> str:
    """Return the first result that is too far from the twin's, in words. Empty: there is none."""
    expected = product(case.packed, case.x)
    found = np.full_like(expected, np.nan)
    rows = len(case.x)
    function(
        case.packed,
        Matrix(case.x.ctypes.data, rows, case.x.shape[1], FLOAT32),
        Matrix(found.ctypes.data, rows, found.shape[1], FLOAT32),
        pool,
    )
    wrong = np.argwhere(~(np.abs(found.astype(np.float64) - expected) <= case.bounds()))
    if not len(wrong):
        return ""
    row, output = wrong[0]
    return f"result [{row}, {output}] is {found[row, output]:.9g} instead of {expected[row, output]:.9g}"
