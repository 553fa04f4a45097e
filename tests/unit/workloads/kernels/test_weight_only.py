"""Tests of the kernels w4a16 and w8a16: exactness, and bits that depend on nothing but the row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from convoy_workloads.kernels import build, dispatch, instruction_sets, w4a16, w8a16
from convoy_workloads.kernels.errors import InvalidInput
from convoy_workloads.kernels.packing import BITS, PackedWeights, dequantise, pack
from convoy_workloads.kernels.threads import ThreadPool
from convoy_workloads.kernels.weight_only import Linear, Matrix, Product
from convoy_workloads.kernels.weight_only_twin import compare, from_bfloat16, to_bfloat16

KERNELS = {"w4a16": w4a16, "w8a16": w8a16}
SCHEMES = tuple(KERNELS)
USABLE = [
    name
    for name, one in instruction_sets.INSTRUCTION_SETS.items()
    if name in w4a16.KERNEL.instruction_sets
    and name in instruction_sets.detect()
    and not one.off_reason
    and build.compiler()
]
sets = pytest.mark.parametrize("name", [*USABLE, dispatch.TWIN])
schemes = pytest.mark.parametrize("scheme", SCHEMES)


def packed_weights(scheme: str, outputs: int, inputs: int, group: int = 128, seed: int = 0) -> PackedWeights:
    """Return random weights with zero points all over the range, so that errors of zero points are large."""
    random = np.random.default_rng(seed)
    shape = (outputs, -(-inputs // group))
    return pack(
        scheme,
        random.integers(0, 1 << BITS[scheme], (outputs, inputs), np.uint8),
        (random.random(shape) * 0.02 + 0.001).astype(np.float16),
        random.integers(0, 1 << BITS[scheme], shape, np.uint8),
        group,
    )


def activations(rows: int, inputs: int, seed: int = 1) -> np.ndarray:
    """Return random activations. Their mean is not 0, so that errors of zero points are large."""
    return np.random.default_rng(seed).normal(0.4, 1.0, (rows, inputs)).astype(np.float32)


def layer(packed: PackedWeights, name: str = dispatch.AUTO, threads: int = 1) -> Linear:
    return KERNELS[packed.scheme].linear(packed, instruction_set=name, threads=threads)


def relative_error(packed: PackedWeights, x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest error of a result, relative to the largest result of its row."""
    exact = from_bfloat16(to_bfloat16(x)).astype(np.float64) @ dequantise(packed).astype(np.float64).T
    return float((np.abs(y - exact).max(axis=1) / np.abs(exact).max(axis=1)).max())


@schemes
@sets
@pytest.mark.parametrize(
    ("rows", "outputs", "inputs", "group"),
    [(1, 256, 1024, 128), (3, 131, 1000, 128), (7, 33, 77, 32), (32, 144, 512, 96), (50, 17, 700, 320)],
)
def test_results_are_exact_to_a_millionth(
    scheme: str, name: str, rows: int, outputs: int, inputs: int, group: int
) -> None:
    packed, x = packed_weights(scheme, outputs, inputs, group), activations(rows, inputs)
    assert relative_error(packed, x, layer(packed, name)(x)) <= 1e-6


@schemes
@sets
def test_dimensions_of_32_thousand(scheme: str, name: str) -> None:
    for outputs, inputs in ((24, 32768), (32768, 40)):
        packed, x = packed_weights(scheme, outputs, inputs), activations(2, inputs)
        assert relative_error(packed, x, layer(packed, name)(x)) <= 1e-6


@schemes
@sets
def test_the_number_of_threads_changes_no_bit(scheme: str, name: str) -> None:
    packed = packed_weights(scheme, 600, 384)
    for rows in (1, 5, 33):
        x = activations(rows, 384)
        expected = layer(packed, name)(x).tobytes()
        for threads in (2, 3, 5):
            assert layer(packed, name, threads)(x).tobytes() == expected


@schemes
@sets
def test_a_row_has_the_same_bits_beside_others_and_at_any_place(scheme: str, name: str) -> None:
    packed = packed_weights(scheme, 150, 200, 64)
    x = activations(40, 200)
    compute = layer(packed, name)
    alone = np.concatenate([compute(row[None]) for row in x])
    for rows in range(2, 41):
        assert compute(x[:rows]).tobytes() == alone[:rows].tobytes()
        assert compute(x[40 - rows :][::-1].copy()).tobytes() == alone[40 - rows :][::-1].tobytes()
    # More rows than are computed together with one unpacking of the weights.
    assert compute(np.tile(x, (7, 1))).tobytes() == np.tile(alone, (7, 1)).tobytes()


@schemes
@sets
def test_an_output_has_the_same_bits_in_a_matrix_of_any_size(scheme: str, name: str) -> None:
    packed, x = packed_weights(scheme, 16 * 9, 256), activations(3, 256)
    whole = layer(packed, name)(x)
    size = packed.tiles.nbytes // 9
    for tile in range(9):
        start = 16 * tile
        own = dataclasses.replace(packed, outputs=16, tiles=packed.tiles[tile * size : (tile + 1) * size])
        assert layer(own, name)(x).tobytes() == whole[:, start : start + 16].tobytes()


@schemes
@sets
def test_torch_tensors_of_both_types_give_the_same_bits_as_numpy(scheme: str, name: str) -> None:
    packed, x = packed_weights(scheme, 50, 96), activations(6, 96)
    compute = layer(packed, name)
    expected = torch.from_numpy(compute(x))
    tensor = torch.from_numpy(x)
    assert torch.equal(compute(tensor), expected)
    half = compute(tensor.bfloat16())
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, expected.bfloat16())
    assert torch.equal(compute(tensor.reshape(2, 3, 96)), expected.reshape(2, 3, 50))
    assert torch.equal(compute(tensor[0]), expected[0])
    wide = torch.zeros(6, 100)
    wide[:, 3:99] = tensor
    assert torch.equal(compute(wide[:, 3:99]), expected)
    out = torch.empty(6, 50, dtype=torch.bfloat16)
    assert compute(tensor, out) is out
    assert torch.equal(out, expected.bfloat16())


@schemes
@sets
def test_no_rows_give_no_rows(scheme: str, name: str) -> None:
    compute = layer(packed_weights(scheme, 20, 32, 32), name)
    assert compute(np.empty((0, 32), np.float32)).shape == (0, 20)


@sets
def test_activations_that_are_not_finite_spoil_their_own_row_only(name: str) -> None:
    packed, x = packed_weights("w4a16", 40, 64, 32), activations(6, 64)
    expected = layer(packed, name)(x)
    x[2, 7], x[4, 50] = np.nan, np.inf
    found = layer(packed, name)(x)
    assert np.isnan(found[2]).all()
    assert not np.isfinite(found[4]).any()
    assert found[[0, 1, 3, 5]].tobytes() == expected[[0, 1, 3, 5]].tobytes()


def test_rows_whose_step_is_no_whole_number_of_elements_are_refused() -> None:
    records = np.zeros(3, np.dtype([("x", np.float32, (32,)), ("mark", np.uint16)]))
    compute = layer(packed_weights("w4a16", 20, 32, 32), "twin")
    with pytest.raises(InvalidInput, match="x: its address or the step of its rows is no multiple of 4"):
        compute(records["x"])


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 100_000, np.uint32)
    x = np.concatenate([bits, [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF]]).astype(np.uint32)
    x = x.view(np.float32)
    x = x[~np.isnan(x)]
    expected = torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert (to_bfloat16(x) == expected).all()
    assert np.isnan(from_bfloat16(to_bfloat16(np.array([np.nan], np.float32)))).all()


def broken(change: Callable[[np.ndarray, PackedWeights, np.ndarray], np.ndarray]) -> Product:
    """Return the twin's function with a fault in its results."""

    def product(packed: PackedWeights, x: Matrix, y: Matrix, pool: ThreadPool) -> None:
        w4a16.KERNEL.twin(packed, x, y, pool)
        found = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_float * (y.rows * y.stride)).from_address(y.address)
        )
        rows = found.reshape(y.rows, y.stride)
        own = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_float * (x.rows * x.stride)).from_address(x.address)
        )
        rows[...] = change(rows, packed, own.reshape(x.rows, x.stride))

    return product


FAULTS: dict[str, Callable[[np.ndarray, PackedWeights, np.ndarray], np.ndarray]] = {
    "none": lambda y, *_: y,
    "the last input is missing": lambda y, packed, x: y - x[:, -1:] * dequantise(packed)[:, -1],
    "the last output is not written": lambda y, *_: np.where(
        np.arange(y.shape[1]) == y.shape[1] - 1, np.nan, y
    ),
    "only from the fifth row on": lambda y, *_: np.where(np.arange(len(y))[:, None] < 4, y, y * 1.0001),
    "bfloat16 results": lambda y, *_: from_bfloat16(to_bfloat16(y)),
    "outputs 8 and 9 are swapped": lambda y, *_: (
        y[:, [*range(8), 9, 8, *range(10, y.shape[1])]] if y.shape[1] > 9 else y
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_finds_faults_and_names_the_shape(fault: str) -> None:
    found = compare("w4a16")(broken(FAULTS[fault]))
    assert (found == "") is (fault == "none")
    assert fault == "none" or "outputs" in found


X = activations(2, 64)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X.astype(np.float64), "x: dtype <f8 instead of <f4"),
        (X.astype(">f4"), "x: dtype >f4 instead of <f4"),
        (X[:, :63], "x: shape 2x63 does not end in 64"),
        (np.zeros((64, 2), np.float32).T, "x: the elements of a row are not contiguous"),
        (X[::-1], "x: its rows are in reverse order"),
        (np.zeros((2, 4, 64), np.float32)[:, ::2], "x: not contiguous"),
        (np.float32(1), "x: shape  does not end"),
        ([[1.0]], "x: shape  does not end"),
        (torch.zeros(2, 64, dtype=torch.float16), "x: dtype torch.float16"),
        (torch.zeros(2, 64, device="meta"), "x: on meta instead of the CPU"),
        (torch.zeros(2, 64, requires_grad=True), "x: gradients are not computed"),
    ],
)
def test_activations_that_cannot_be_used_are_refused(x: Any, message: str) -> None:
    compute = layer(packed_weights("w4a16", 16, 64), dispatch.TWIN)
    with pytest.raises(InvalidInput, match=message):
        compute(x)


def test_results_that_cannot_be_written_are_refused() -> None:
    compute = layer(packed_weights("w4a16", 16, 64), dispatch.TWIN)
    read_only = np.zeros((2, 16), np.float32)
    read_only.flags.writeable = False
    for out, message in (
        (np.zeros((2, 17), np.float32), "out: shape"),
        (np.zeros((2, 32), np.float32)[:, ::2], "out: not contiguous"),
        (read_only, "out: read-only"),
    ):
        with pytest.raises(InvalidInput, match=message):
            compute(X, out)


def test_weights_of_another_scheme_are_refused() -> None:
    with pytest.raises(InvalidInput, match="weights of scheme w8a16 for kernel w4a16"):
        w4a16.linear(packed_weights("w8a16", 16, 64))
