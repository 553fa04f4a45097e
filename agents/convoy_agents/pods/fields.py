"""Validation of the fields of frames from pods, which are untrusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class MessageError(ValueError):
    """A frame's field is missing or invalid. The message names the field."""


def whole(frame: Mapping[str, Any], name: str, maximum: int, default: int | None = None) -> int:
    """Return a whole number from 0 to `maximum`; `default` if the field is missing."""
    value = frame.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise MessageError(f"{name}: {show(value)} is not a whole number from 0 to {maximum}")
    return value


def number(frame: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number; None if the field is missing."""
    value = frame.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageError(f"{name}: {show(value)} is not a number")
    try:
        found = float(value)
    except OverflowError as error:
        raise MessageError(f"{name}: too large") from error
    if not math.isfinite(found):
        raise MessageError(f"{name}: not finite")
    return found


def flag(frame: Mapping[str, Any], name: str) -> bool:
    """Return a boolean; False if the field is missing."""
    value = frame.get(name, False)
    if not isinstance(value, bool):
        raise MessageError(f"{name}: {show(value)} is neither true nor false")
    return value


def text(frame: Mapping[str, Any], name: str, maximum: int | None) -> str:
    """Return the first `maximum` characters of a text; empty if the field is missing."""
    value = frame.get(name, "")
    if not isinstance(value, str):
        raise MessageError(f"{name}: {show(value)} is not a text")
    return value[:maximum]


def show(value: object) -> str:
    """Return at most 40 characters of an untrusted value, quoted."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "a huge number"
    return ascii(value if not isinstance(value, str) else value[:40])[:40]
