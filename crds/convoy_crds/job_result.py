"""The result that a program leaves at its end. It comes from a pod, so it is untrusted."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_RESULT_BYTES = 3500
"""Maximum bytes of a result as JSON. A container's termination message has room for 4,096 bytes."""
MAX_RESULT_DEPTH = 8
"""Maximum number of nested objects and lists."""
_MAX_INTEGER = 2**63 - 1


class ResultRefused(ValueError):
    """A result is too large or malformed. The message names the problem."""


def parse_result(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`, without fields that are null.

    Raises ResultRefused if the text is too large, no JSON object, or contains a value that the API server
    cannot store.
    """
    size = len(text.encode(errors="replace"))
    if size > MAX_RESULT_BYTES:
        raise ResultRefused(f"it has more than {MAX_RESULT_BYTES} bytes")
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ResultRefused(f"it is not valid JSON ({_why(error)})") from error
    if not isinstance(found, dict):
        raise ResultRefused("it is not a JSON object")
    cleaned: dict[str, Any] = _checked(found, 1)
    return cleaned


def _why(error: Exception) -> str:
    return "too deeply nested" if isinstance(error, RecursionError) else str(error)[:120]


def _refuse_constant(name: str) -> NoReturn:
    raise ResultRefused(f"{name} is not a number in JSON")


def _checked(value: Any, depth: int) -> Any:
    """Return the value without null fields. Raises ResultRefused for a value that cannot be stored."""
    if isinstance(value, (dict, list)):
        if depth > MAX_RESULT_DEPTH:
            raise ResultRefused(f"it has more than {MAX_RESULT_DEPTH} nested objects and lists")
        if isinstance(value, list):
            return [_checked(item, depth + 1) for item in value]
        return {
            _checked(name, depth): _checked(item, depth + 1)
            for name, item in value.items()
            if item is not None
        }
    if isinstance(value, float) and not math.isfinite(value):
        raise ResultRefused("a number is too large")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise ResultRefused("a whole number needs more than 64 bits")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ResultRefused("a text is not valid Unicode") from error
    return value
