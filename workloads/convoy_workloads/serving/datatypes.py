"""The datatypes of the Open Inference Protocol, and tensors as JSON values or as bytes."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

BYTES = "BYTES"
"""Datatype of texts. Such a tensor is an array of str objects."""
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{
        f"{kind}{bits}": np.dtype(f"{kind}{bits}".lower())
        for kind in ("UINT", "INT")
        for bits in (8, 16, 32, 64)
    },
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    BYTES: np.dtype(object),
}
"""NumPy's type of each datatype."""


class DataError(ValueError):
    """Raised if data does not fit its datatype or its shape. The message says why."""


def datatype_of(dtype: np.dtype[Any]) -> str:
    """Return the datatype for a NumPy type. Texts and other objects are BYTES."""
    native = dtype.newbyteorder("=")
    return next((name for name, known in DTYPES.items() if known == native), BYTES)


def from_json(data: object, datatype: str, shape: tuple[int, ...]) -> Array:
    """Return the tensor in a JSON value, flat or nested in row-major order. In tensors of floating-point
    numbers, null stands for NaN. Raises DataError if the value does not fit the datatype or the shape.
    """
    if not isinstance(data, list):
        raise DataError("data must be a list")
    try:
        # NumPy would turn integers above 2**63 beside others into floating-point numbers.
        array = np.array(data, dtype=object if datatype in (BYTES, "UINT64") else None)
    except (ValueError, OverflowError) as error:
        raise DataError("data has lists of different lengths") from error
    if datatype == BYTES:
        return _shaped(_texts(array), shape)
    return _shaped(_numbers(array, datatype), shape)


def _texts(array: Array) -> Array:
    for one in array.ravel():
        if not isinstance(one, str):
            raise DataError(f"datatype BYTES needs texts, not {_short(one)}")
    return array


def _numbers(array: Array, datatype: str) -> Array:
    dtype = DTYPES[datatype]
    if array.size == 0:
        return array.astype(dtype)
    if array.dtype.kind == "O" and dtype.kind == "f":
        if wrong := [one for one in array.ravel() if not (one is None or isinstance(one, int | float))]:
            raise DataError(f"datatype {datatype} needs numbers, not {_short(wrong[0])}")
        array = array.astype(np.float64)
    if array.dtype.kind == "O" and dtype.kind == "u" and all(type(one) is int for one in array.ravel()):
        try:
            return array.astype(dtype)
        except OverflowError as error:
            raise DataError(f"datatype {datatype} holds integers from 0 to {np.iinfo(dtype).max}") from error
    allowed = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}[dtype.kind]
    if array.dtype.kind not in allowed:
        wanted = {"b": "true or false", "u": "integers", "i": "integers", "f": "numbers"}[dtype.kind]
        raise DataError(f"datatype {datatype} needs {wanted}, not {_short(array.ravel()[0])}")
    return convert(array, datatype)


def _short(value: object) -> str:
    """Return a value as JSON for an error's message."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return json.dumps(value, ensure_ascii=False)[:40]
    except TypeError:
        return str(value)[:40]


def convert(array: Array, datatype: str) -> Array:
    """Return a tensor of numbers with another datatype. Raises DataError if a number is too large for it."""
    dtype = DTYPES[datatype]
    with np.errstate(over="ignore"):
        found = array.astype(dtype)
    if dtype.kind in "ui" and not (found == array).all():
        limits = np.iinfo(dtype)
        raise DataError(f"datatype {datatype} holds integers from {limits.min} to {limits.max}")
    if dtype.kind == "f" and (np.isinf(found) & np.isfinite(array.astype(np.float64))).any():
        raise DataError(f"datatype {datatype} holds no number above {np.finfo(dtype).max}")
    return found


def _shaped(array: Array, shape: tuple[int, ...]) -> Array:
    if math.prod(shape) != array.size or (array.ndim > 1 and array.shape != shape):
        raise DataError(f"shape {list(shape)} does not match data of shape {list(array.shape)}")
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:  # One dimension is 0, another one huge.
        raise DataError(f"shape {list(shape)} is too large") from error


def from_bytes(data: bytes, datatype: str, shape: tuple[int, ...]) -> Array:
    """Return the tensor in the bytes of the binary tensor extension. Raises DataError if the bytes do not fit
    the datatype or the shape.
    """
    if datatype == BYTES:
        array = np.array(_split_texts(data), dtype=object)
    else:
        dtype = DTYPES[datatype].newbyteorder("<")
        if len(data) % dtype.itemsize:
            raise DataError(f"{len(data)} bytes are no whole number of {datatype} values")
        array = np.frombuffer(data, dtype).astype(DTYPES[datatype])
    return _shaped(array, shape)


def _split_texts(data: bytes) -> list[str]:
    """Return the texts in `data`. Each follows its length in 4 bytes."""
    found, at = [], 0
    while at < len(data):
        end = at + 4
        length = int.from_bytes(data[at:end], "little")
        if end + length > len(data):
            raise DataError("the last text is not complete")
        try:
            found.append(data[end : end + length].decode())
        except UnicodeDecodeError as error:
            raise DataError(f"text {len(found)} is not valid UTF-8") from error
        at = end + length
    return found


def to_json(array: Array) -> list[Any]:
    """Return the values of a tensor in row-major order. NaN and infinite values become null."""
    values: list[Any] = array.ravel().tolist()
    return values


def to_bytes(array: Array) -> bytes:
    """Return a tensor as the bytes of the binary tensor extension."""
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [one.encode() for one in array.ravel()]
    return b"".join(struct.pack("<I", len(one)) + one for one in texts)
