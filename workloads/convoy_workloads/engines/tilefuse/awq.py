"""The format of AutoAWQ (github.com/casper-hansen/AutoAWQ), version GEMM, for codes of 4 bits. Pure.

A matrix with K inputs and N outputs is three tensors: `qweight` int32 [K, N / 8], `qzeros` int32 [K / group,
N / 8] and `scales` float16 [K / group, N]. Bits 4i..4i+3 of an int32 belong to column ORDER[i] of its eight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy_workloads.engines.tilefuse.groups import Codes, FormatError

BITS = 4
NAMES = ("qweight", "qzeros", "scales")
"""Ends of the tensors' names. Without them, all names of a matrix are equal."""
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_INVERSE = tuple(ORDER.index(column) for column in range(8))


def tensors(codes: Codes) -> dict[str, NDArray[Any]]:
    """Return the three tensors of a matrix."""
    return {
        "qweight": _pack(codes.codes.T),
        "qzeros": _pack(codes.zeros.T),
        "scales": np.ascontiguousarray(codes.scales.T),
    }


def codes(name: str, found: Mapping[str, NDArray[Any]], group_size: int) -> Codes:
    """Return the codes of a matrix. Raises FormatError, with the tensor, if its tensors do not fit."""
    weight, zeros, scales = (found[one] for one in NAMES)
    for one in ("qweight", "qzeros"):
        if found[one].dtype != np.int32:
            raise FormatError(f"tensor {name}.{one} has type {found[one].dtype}, expected int32")
    if scales.dtype.kind != "f":
        raise FormatError(f"tensor {name}.scales has type {scales.dtype}, expected a floating-point type")
    if weight.ndim != 2 or not weight.size:
        raise FormatError(
            f"tensor {name}.qweight has shape {list(weight.shape)}, expected [inputs, outputs / 8]"
        )
    inputs, outputs = weight.shape[0], weight.shape[1] * 8
    if inputs % group_size:
        raise FormatError(
            f"tensor {name}.qweight has {inputs} inputs, which is no multiple of "
            f"quantization_config.group_size={group_size}: correct group_size in config.json"
        )
    groups = inputs // group_size
    for one, shape in (("qzeros", (groups, outputs // 8)), ("scales", (groups, outputs))):
        if found[one].shape != shape:
            raise FormatError(
                f"tensor {name}.{one} has shape {list(found[one].shape)}, expected {list(shape)} for "
                f"{inputs} inputs, {outputs} outputs and quantization_config.group_size={group_size}"
            )
    with np.errstate(over="ignore"):
        scales = scales.astype(np.float16)  # Some exporters write them in bfloat16.
    check_scales(f"{name}.scales", scales)
    return Codes(
        np.ascontiguousarray(_unpack(weight).T),
        np.ascontiguousarray(scales.T),
        np.ascontiguousarray(_unpack(zeros).T),
        BITS,
        group_size,
    )


def config(group_size: int) -> dict[str, object]:
    """Return the `quantization_config` of a model in this format."""
    return {
        "quant_method": "awq",
        "bits": BITS,
        "group_size": group_size,
        "zero_point": True,
        "version": "gemm",
    }


def check_scales(name: str, scales: NDArray[Any]) -> None:
    """Raise FormatError if a scale is not finite."""
    if not np.isfinite(scales).all():
        place = np.argwhere(~np.isfinite(scales))[0].tolist()
        raise FormatError(
            f"tensor {name} has the scale {scales[tuple(place)]} at {place}: quantise the model again"
        )


def _pack(columns: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return codes [rows, N] as int32 [rows, N / 8]."""
    eights = columns.reshape(len(columns), -1, 8)
    found = np.zeros(eights.shape[:2], np.uint32)
    for place, column in enumerate(ORDER):
        found |= eights[:, :, column].astype(np.uint32) << np.uint32(4 * place)
    return found.view(np.int32)


def _unpack(packed: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Return int32 [rows, N / 8] as codes [rows, N]."""
    words = np.ascontiguousarray(packed).view(np.uint32)
    found = np.empty((*words.shape, 8), np.uint8)
    for column, place in enumerate(_INVERSE):
        found[:, :, column] = (words >> np.uint32(4 * place)) & np.uint32(15)
    return found.reshape(len(words), -1)
