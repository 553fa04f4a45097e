"""Binds C functions of kernels, and checks numpy arrays before their addresses go to C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy_workloads.kernels.errors import InvalidInput


def kernel_function(loaded: ctypes.CDLL, name: str) -> Any:
    """Return the C function `void name(const struct*, int64_t begin, int64_t end)` of a library."""
    function = getattr(loaded, name)
    function.restype = None
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return function


def check_array(
    name: str,
    array: Any,
    dtype: Any,
    shape: Sequence[int | None],
    *,
    alignment: int = 1,
    writable: bool = False,
) -> np.ndarray[Any, Any]:
    """Return the array if C code may read it as `dtype[shape]`. None in `shape` allows every length.

    Raises InvalidInput for another type, dtype, byte order, number of dimensions or length, for arrays that
    are not C-contiguous, for addresses that are no multiple of `alignment`, and for arrays that are read-only
    although `writable` is demanded.
    """
    expected = np.dtype(dtype)
    if not isinstance(array, np.ndarray):
        raise InvalidInput(f"{name}: {type(array).__name__} is no numpy array")
    if array.dtype != expected:
        raise InvalidInput(f"{name}: dtype {array.dtype.str} instead of {expected.str}")
    wanted = "x".join("?" if length is None else str(length) for length in shape)
    fits = array.ndim == len(shape) and all(
        length is None or length == found for length, found in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise InvalidInput(f"{name}: shape {'x'.join(map(str, array.shape))} instead of {wanted}")
    if not array.flags.c_contiguous:
        raise InvalidInput(f"{name}: not C-contiguous; use numpy.ascontiguousarray")
    if array.ctypes.data % alignment:
        raise InvalidInput(f"{name}: its address is no multiple of {alignment}")
    if writable and not array.flags.writeable:
        raise InvalidInput(f"{name}: read-only")
    return array
