"""Tests of the file formats: exact round trips, the order of AutoAWQ and compressed-tensors, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_workloads.engines.tilefuse import awq, formats, packed_int
from convoy_workloads.engines.tilefuse.formats import FORMATS, FormatError
from convoy_workloads.engines.tilefuse.groups import SCHEMES, Codes


def codes_of(scheme: str, outputs: int, groups: int, group_size: int, seed: int) -> Codes:
    random = np.random.default_rng(seed)
    bits = SCHEMES[scheme]
    return Codes(
        random.integers(0, 2**bits, (outputs, groups * group_size)).astype(np.uint8),
        random.standard_normal((outputs, groups)).astype(np.float16),
        random.integers(0, 2**bits, (outputs, groups)).astype(np.uint8),
        bits,
        group_size,
    )


@given(
    st.sampled_from(sorted(FORMATS)),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from([32, 64, 96]),
    st.integers(0, 2**31),
)
@settings(max_examples=cases(40), deadline=None)
def test_codes_scales_and_zero_points_come_back_bit_for_bit(
    scheme: str, eights: int, groups: int, group_size: int, seed: int
) -> None:
    made = codes_of(scheme, 8 * eights, groups, group_size, seed)
    form = FORMATS[scheme]
    tensors = form.tensors(made)
    assert set(tensors) == {*form.names, *form.optional}
    assert all(torch.from_numpy(one).numpy().tobytes() == one.tobytes() for one in tensors.values())
    found = form.codes("w", tensors, group_size)
    assert (found.bits, found.group_size) == (made.bits, group_size)
    for name in ("codes", "scales", "zeros"):
        one, other = getattr(found, name), getattr(made, name)
        assert one.dtype == other.dtype and one.flags.c_contiguous and one.tobytes() == other.tobytes()
    again = form.tensors(found)
    assert all(again[name].tobytes() == one.tobytes() for name, one in tensors.items())


def test_the_order_of_columns_is_that_of_autoawq() -> None:
    # AutoAWQ dequantises nibble i of an int32 to column (0, 2, 4, 6, 1, 3, 5, 7)[i] of the eight.
    columns = np.arange(8, dtype=np.uint8)[:, None].repeat(32, 1)
    made = Codes(columns, np.ones((8, 1), np.float16), np.full((8, 1), 3, np.uint8), 4, 32)
    tensors = awq.tensors(made)
    assert tensors["qweight"].shape == (32, 1) and tensors["qweight"].dtype == np.int32
    assert (tensors["qweight"].view(np.uint32) == 0x75316420).all()
    assert tensors["qzeros"].tolist() == [[0x33333333]]
    assert tensors["scales"].shape == (1, 8)
    assert (made.dequantised()[:, 0] == np.arange(8) - 3).all()


def test_the_order_of_inputs_is_that_of_compressed_tensors() -> None:
    # The signed codes 1 and 2 are stored as 129 and 130, the first in the lowest bits.
    codes = np.full((4, 32), 128, np.uint8)
    codes[0, :2] = 129, 130
    made = Codes(codes, np.ones((4, 1), np.float16), np.array([[1], [2], [3], [4]], np.uint8), 8, 32)
    tensors = packed_int.tensors(made)
    assert tensors["weight_packed"].view(np.uint32)[0, 0] == 0x80808281
    assert tensors["weight_zero_point"].tolist() == [[0x04030201]]
    assert tensors["weight_shape"].tolist() == [4, 32]


def test_weights_without_zero_points_are_symmetric_and_one_scale_serves_all_groups() -> None:
    made = codes_of("w8a16", 8, 3, 32, 1)
    tensors = packed_int.tensors(made)
    del tensors["weight_zero_point"]
    tensors["weight_scale"] = np.ascontiguousarray(tensors["weight_scale"][:, :1]).astype(np.float32)
    found = packed_int.codes("w", tensors, 32)
    assert (found.zeros == 128).all()
    assert (found.scales == made.scales[:, :1]).all() and found.scales.shape == (8, 3)


def test_scales_of_another_floating_point_type_are_read() -> None:
    made = codes_of("w4a16", 16, 2, 64, 3)
    found = awq.codes("w", {**awq.tensors(made), "scales": made.scales.T.astype(np.float32)}, 64)
    assert found.scales.dtype == np.float16 and found.scales.tobytes() == made.scales.tobytes()


def broken(name: str, change: Any) -> dict[str, Any]:
    tensors = awq.tensors(codes_of("w4a16", 16, 2, 64, 0))
    tensors[name] = change(tensors[name])
    return tensors


def with_nan(scales: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found = scales.copy()
    found[1, 5] = np.nan
    return found


@pytest.mark.parametrize(
    ("name", "change", "group_size", "words"),
    [
        ("scales", with_nan, 64, r"tensor w\.scales has the scale nan at \[1, 5\]: quantise the model again"),
        (
            "scales",
            lambda one: one[:1],
            64,
            r"w\.scales has shape \[1, 16\], expected \[2, 16\] for 128 inputs",
        ),
        (
            "scales",
            lambda one: one.astype(np.int16),
            64,
            "w.scales has type int16, expected a floating-point",
        ),
        ("scales", lambda one: one.astype(np.float32) * 1e9, 64, r"w\.scales has the scale -?inf at"),
        ("qzeros", lambda one: one[:, :1], 64, r"w\.qzeros has shape \[2, 1\], expected \[2, 2\]"),
        (
            "qweight",
            lambda one: one[:100],
            64,
            "100 inputs, which is no multiple of .*group_size=64: correct",
        ),
        ("qweight", lambda one: one.astype(np.int64), 64, "w.qweight has type int64, expected int32"),
        ("qweight", lambda one: one[0], 64, r"w\.qweight has shape \[2\], expected \[inputs, outputs / 8\]"),
        ("qweight", lambda one: one, 32, r"w\.qzeros has shape \[2, 2\], expected \[4, 2\].*group_size=32"),
    ],
)
def test_tensors_that_do_not_fit_are_named(name: str, change: Any, group_size: int, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        awq.codes("w", broken(name, change), group_size)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("weight_scale", lambda one: one.astype(np.float32) * 1e9, r"weight_scale has the scale -?inf at"),
        ("weight_scale", lambda one: one[:, :2], r"weight_scale has shape \[8, 2\], expected \[8, 3\]"),
        ("weight_packed", lambda one: one[:4], r"weight_packed has shape \[4, 24\], expected \[8, 24\]"),
        (
            "weight_shape",
            lambda _: np.array([8, 97]),
            "8 x 97: the inputs must be a multiple of group_size=32",
        ),
        ("weight_shape", lambda _: np.array([8]), r"weight_shape holds \[8\], expected two sizes"),
        ("weight_zero_point", lambda one: one.T, r"weight_zero_point has shape \[3, 2\], expected \[2, 3\]"),
    ],
)
def test_tensors_of_8_bits_that_do_not_fit_are_named(name: str, change: Any, words: str) -> None:
    tensors = packed_int.tensors(codes_of("w8a16", 8, 3, 32, 1))
    tensors[name] = change(tensors[name])
    with pytest.raises(FormatError, match=words):
        packed_int.codes("w", tensors, 32)


@pytest.mark.parametrize("scheme", FORMATS)
def test_the_written_configuration_is_read(scheme: str) -> None:
    form, group_size = formats.read(FORMATS[scheme].config(64))
    assert (form.scheme, group_size) == (scheme, 64)


AWQ = awq.config(128)
INT8 = packed_int.config(128)


def with_weights(**changes: object) -> dict[str, Any]:
    group = INT8["config_groups"]["group_0"]  # type: ignore[index]
    return {**INT8, "config_groups": {"group_0": {**group, "weights": {**group["weights"], **changes}}}}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "gptq", "bits": 4}, 'quant_method: "gptq" is not supported. Use awq for 4 bits'),
        ({**AWQ, "version": "gemv"}, 'version: "gemv" has another order .* export the model again'),
        ({**AWQ, "version": "marlin"}, 'version: "marlin" has another order'),
        ({**AWQ, "bits": 3}, "quantization_config.bits: 3 is not supported, only 4"),
        (
            {**AWQ, "zero_point": False},
            "zero_point: false is not supported, only true: export .* zero points",
        ),
        ({**AWQ, "desc_act": True}, "desc_act: true is not supported"),
        ({**AWQ, "group_size": -1}, "group_size: -1 is not supported. It must be a multiple of 32"),
        ({**AWQ, "group_size": 48}, "group_size: 48 is not supported"),
        ({**INT8, "format": "int-quantized"}, 'format: "int-quantized" is not supported'),
        ({**INT8, "config_groups": {}}, "config_groups: must be one group"),
        (with_weights(num_bits=4), r"config_groups\.group_0\.weights\.num_bits: 4 is not supported, only 8"),
        (with_weights(strategy="tensor"), 'strategy: "tensor" is not supported'),
        (with_weights(actorder="group"), 'actorder: "group" is not supported'),
        (with_weights(group_size=None), "group_size: null is not supported"),
        (with_weights(symmetric="no"), r'weights\.symmetric: "no" must be a boolean'),
    ],
)
def test_other_formats_are_refused_with_what_to_do(config: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        formats.read(config)


def test_weights_that_are_not_symmetric_need_zero_points() -> None:
    made = codes_of("w8a16", 8, 3, 32, 1)
    tensors = packed_int.tensors(made)
    asymmetric, _ = formats.read(with_weights(symmetric=False))
    assert asymmetric.codes("w", tensors, 32).zeros.tobytes() == made.zeros.tobytes()
    del tensors["weight_zero_point"]
    with pytest.raises(FormatError, match=r"w\.weight_zero_point is missing, and .* has symmetric: false"):
        asymmetric.codes("w", tensors, 32)
    symmetric, _ = formats.read(with_weights(symmetric=True))
    assert (symmetric.codes("w", tensors, 32).zeros == 128).all()


def test_one_scale_for_each_output_is_read_in_groups_of_128() -> None:
    assert formats.read(with_weights(strategy="channel", group_size=None))[1] == 128
