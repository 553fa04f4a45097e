"""The small result that a program leaves at its end. The launcher reads it from a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.log import log_line

MAX_RESULT_BYTES = 3500
"""Maximum bytes of a result as JSON. The operator applies the same limit."""
MAX_RESULT_DEPTH = 8
"""Maximum number of nested objects and lists. The operator applies the same limit."""
_MAX_INTEGER = 2**63 - 1


class ResultError(ValueError):
    """A program's result cannot be stored. The message names the field and the limit."""


def write_result(path: str, text: str) -> None:
    """Write the encoded result to the file `path` atomically. Without a path, write it to the log."""
    if not path:
        log_line(f"result: {text}")
        return
    fresh = Path(f"{path}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def encode_result(result: Mapping[str, Any]) -> str:
    """Return the result as JSON. Raises ResultError if the result cannot be stored."""
    if not isinstance(result, Mapping):
        raise ResultError(f"the result must be a dict, not {type(result).__name__}")
    text = json.dumps(_plain(result, "result", 1), ensure_ascii=False, separators=(",", ":"))
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ResultError(f"the result contains text that is not valid Unicode: {error.reason}") from error
    if size > MAX_RESULT_BYTES:
        raise ResultError(
            f"the result has {size} bytes as JSON, but at most {MAX_RESULT_BYTES} are allowed: save large "
            "data in a checkpoint or a file"
        )
    return text


def _plain(value: Any, path: str, depth: int) -> Any:
    """Return a value in the types of JSON. Arrays and tensors of one element become numbers."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return _checked_number(value, path)
    if isinstance(value, (Mapping, list, tuple)):
        if depth > MAX_RESULT_DEPTH:
            raise ResultError(f"{path}: more than {MAX_RESULT_DEPTH} nested objects and lists")
        if not isinstance(value, Mapping):
            return [_plain(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
        for name in value:
            if not isinstance(name, str):
                raise ResultError(f"{path}: the name {name!r} is not a text")
        return {name: _plain(item, f"{path}[{name!r}]", depth + 1) for name, item in value.items()}
    try:
        return _checked_number(value.item(), path)  # NumPy and torch
    except (AttributeError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, ResultError):
            raise
        raise ResultError(f"{path}: a {type(value).__name__} cannot be stored as JSON") from None


def _checked_number(value: Any, path: str) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > _MAX_INTEGER:
            raise ResultError(f"{path}: the whole number needs more than 64 bits")
        return int(value)
    if not isinstance(value, float):
        raise ResultError(f"{path}: a {type(value).__name__} cannot be stored as JSON")
    if not math.isfinite(value):
        raise ResultError(f"{path}: {value} is not a finite number")
    return float(value)
