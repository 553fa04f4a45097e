"""Encodes a state of JSON values and numpy arrays as bytes. The arrays keep every bit.

A checkpoint holds the bytes as one entry. So the state may have other keys in each checkpoint.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

ARRAY = "$array"
"""Key that marks an encoded array. No mapping of a payload may have it."""


def encode(state: Mapping[str, Any]) -> bytes:
    """Return the state as bytes. Raises TypeError for a value that is neither JSON nor an array."""
    return json.dumps(state, default=_encode_array, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """Return the state that `encode` turned into bytes. Lists stand in for tuples."""
    found: dict[str, Any] = json.loads(data, object_hook=_decode_array)
    return found


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise TypeError(f"{type(value).__name__} cannot be saved; use JSON values and numpy arrays")
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {ARRAY: data, "dtype": value.dtype.str, "shape": value.shape}


def _decode_array(value: dict[str, Any]) -> Any:
    if ARRAY not in value:
        return value
    data = base64.b64decode(value[ARRAY])
    return np.frombuffer(data, dtype=np.dtype(value["dtype"])).reshape(value["shape"]).copy()
