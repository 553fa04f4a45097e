"""The format `pack-quantized` of compressed-tensors (github.com/neuralmagic/compressed-tensors), which
llm-compressor writes for the scheme W8A16 and vLLM reads, for codes of 8 bits. Pure.

A matrix with K inputs and N outputs is: `weight_packed` int32 [N, K / 4], with four codes in the order of the
inputs, the first in the lowest bits; `weight_scale` [N, K / group]; `weight_zero_point` int32 [N / 4, K /
group], with four outputs in an int32; and `weight_shape`, which is [N, K]. Symmetric weights have no zero
points: theirs is 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy_workloads.engines.tilefuse.awq import check_scales
from convoy_workloads.engines.tilefuse.groups import Codes, FormatError

BITS = 8
NAMES = ("weight_packed", "weight_scale", "weight_shape")
ZEROS = "weight_zero_point"
_SYMMETRIC_ZERO = 128


def tensors(codes: Codes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a matrix."""
    # Copies: the view of an array with one group keeps strides that torch does not take.
    by_output = codes.zeros.T.copy().view("<i4").T
    return {
        "weight_packed": np.ascontiguousarray(codes.codes).view("<i4"),
        "weight_scale": np.ascontiguousarray(codes.scales),
        ZEROS: by_output.copy(),
        "weight_shape": np.array(codes.codes.shape, np.int64),
    }


def codes(name: str, found: Mapping[str, NDArray[Any]], group_size: int) -> Codes:
    """Return the codes of a matrix. Raises FormatError, with the tensor, if its tensors do not fit."""
    packed, scales = found["weight_packed"], found["weight_scale"]
    shape = [int(one) for one in np.ravel(found["weight_shape"])]
    if len(shape) != 2 or min(shape) < 1:
        raise FormatError(f"tensor {name}.weight_shape holds {shape}, expected two sizes")
    outputs, inputs = shape
    if inputs % group_size or inputs % 4 or outputs % 4:
        raise FormatError(
            f"tensor {name}.weight_packed is {outputs} x {inputs}: the inputs must be a multiple of "
            f"group_size={group_size}, and the outputs of 4"
        )
    groups = inputs // group_size
    if scales.shape == (outputs, 1):  # One scale for each output: all groups get it.
        scales = np.repeat(scales, groups, axis=1)
        if ZEROS in found:
            found = {**found, ZEROS: np.repeat(found[ZEROS], groups, axis=1)}
        found = {**found, "weight_scale": scales}
    expected: dict[str, tuple[int, ...]] = {
        "weight_packed": (outputs, inputs // 4),
        "weight_scale": (outputs, groups),
    }
    if ZEROS in found:
        expected[ZEROS] = (outputs // 4, groups)
    for one, wanted in expected.items():
        if found[one].shape != wanted:
            raise FormatError(
                f"tensor {name}.{one} has shape {list(found[one].shape)}, expected {list(wanted)} for "
                f"{inputs} inputs, {outputs} outputs and group_size={group_size}"
            )
        if one != "weight_scale" and found[one].dtype != np.int32:
            raise FormatError(f"tensor {name}.{one} has type {found[one].dtype}, expected int32")
    if ZEROS in found:
        zeros = np.ascontiguousarray(np.ascontiguousarray(found[ZEROS].T).view(np.uint8).T)
    else:
        zeros = np.full((outputs, groups), _SYMMETRIC_ZERO, np.uint8)
    with np.errstate(over="ignore"):
        scales = np.ascontiguousarray(scales.astype(np.float16))
    check_scales(f"{name}.weight_scale", scales)
    return Codes(
        np.ascontiguousarray(packed).view(np.uint8).reshape(outputs, inputs), scales, zeros, BITS, group_size
    )


def codes_with_zeros(name: str, found: Mapping[str, NDArray[Any]], group_size: int) -> Codes:
    """Return the codes of a matrix with zero points. Raises FormatError, with the tensor, if the zero points
    are missing.
    """
    if ZEROS not in found:
        raise FormatError(
            f"tensor {name}.{ZEROS} is missing, and the quantization_config has symmetric: false: compress "
            "the model again, or set symmetric to true if its weights are symmetric"
        )
    return codes(name, found, group_size)


def config(group_size: int) -> dict[str, object]:
    """Return the `quantization_config` of a model in this format."""
    weights = {
        "num_bits": BITS,
        "type": "int",
        "symmetric": False,
        "strategy": "group",
        "group_size": group_size,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }
