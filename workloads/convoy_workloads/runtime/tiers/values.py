"""The JSON form of values that are not tensors: numbers, texts, lists, tuples, bytes, arrays. Encoding and
decoding are exact.

Pickle is not used, because data from a store must not be able to run code.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import struct
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

_TAG = "$"
_DOUBLE = struct.Struct(">d")


class UnsavableError(TypeError):
    """Raised for a value that cannot be encoded exactly. The message gives the value's path."""


def dumps(value: Any) -> str:
    """Return the text that encodes a value. Raises UnsavableError, with the path of the part that cannot be
    saved.
    """
    return json.dumps(_encode(value, ""), separators=(",", ":"), sort_keys=True, allow_nan=False)


def loads(text: str) -> Any:
    """Return the value that `dumps` encoded. Raises ValueError or KeyError for any other text."""
    return _decode(json.loads(text))


def _encode(value: Any, path: str) -> Any:
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        if isinstance(value, float) and not math.isfinite(value):
            # JSON lacks NaN and infinity, and a NaN has a sign and a payload. So store all bits.
            return {_TAG: "float", "v": _DOUBLE.pack(value).hex()}
        return value
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and _TAG not in value:
            return {key: _encode(one, f"{path}.{key}") for key, one in value.items()}
        pairs = [[_encode(key, path), _encode(one, f"{path}.{key}")] for key, one in value.items()]
        return {_TAG: "dict", "v": pairs}
    if type(value) is list:
        return [_encode(one, f"{path}[{number}]") for number, one in enumerate(value)]
    if type(value) is tuple:
        return {_TAG: "tuple", "v": [_encode(one, f"{path}[{number}]") for number, one in enumerate(value)]}
    if isinstance(value, (bytes, bytearray)):
        return {_TAG: "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, SimpleNamespace):
        return {_TAG: "namespace", "v": _encode(vars(value), path)}
    return _encode_array(value, path)


def _encode_array(value: Any, path: str) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return {
            _TAG: "tensor",
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "v": base64.b64encode(bytes(flat.tolist())).decode(),
        }
    if torch is not None and isinstance(value, torch.dtype):
        return {_TAG: "dtype", "v": str(value).removeprefix("torch.")}
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        return {
            _TAG: "array",
            "dtype": value.dtype.str,
            "shape": list(value.shape),
            "v": base64.b64encode(value.tobytes()).decode(),
        }
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufc":
        return {_TAG: "scalar", "dtype": value.dtype.str, "v": base64.b64encode(value.tobytes()).decode()}
    raise UnsavableError(
        f"{path or 'the value'} is a {type(value).__module__}.{type(value).__qualname__}: a checkpoint holds "
        "tensors, numbers, texts, bytes, and lists, tuples and dicts of them"
    )


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {key: _decode(one) for key, one in value.items()}
    return _decode_tagged(str(kind), value)


def _decode_tagged(kind: str, value: Mapping[str, Any]) -> Any:
    if kind == "dict":
        return {_hashable(_decode(key)): _decode(one) for key, one in value["v"]}
    if kind == "tuple":
        return tuple(_decode(one) for one in value["v"])
    if kind == "namespace":
        return SimpleNamespace(**_decode(value["v"]))
    if kind == "float":
        return _double(bytes.fromhex(value["v"]))
    if kind == "bytes":
        return base64.b64decode(value["v"])
    if kind in ("tensor", "dtype"):
        import torch  # noqa: PLC0415

        if kind == "dtype":
            return getattr(torch, value["v"])
        raw = bytearray(base64.b64decode(value["v"]))
        dtype = getattr(torch, value["dtype"])
        flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
        return flat.reshape(value["shape"]).clone()
    if kind in ("array", "scalar"):
        numpy = importlib.import_module("numpy")

        found = numpy.frombuffer(base64.b64decode(value["v"]), dtype=numpy.dtype(value["dtype"]))
        return found[0] if kind == "scalar" else found.reshape(value["shape"]).copy()
    raise ValueError(f"unknown kind of value: {kind}")


def _double(raw: bytes) -> float:
    if len(raw) != _DOUBLE.size:
        raise ValueError(f"a float of {len(raw)} bytes")
    value: float = _DOUBLE.unpack(raw)[0]
    return value


def _hashable(key: Any) -> Any:
    return tuple(_hashable(one) for one in key) if isinstance(key, list) else key
