"""Reads and validates single fields of a frame. Frames come from pods and are untrusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class MessageError(ValueError):
    """A field of a frame is missing or invalid. The error message names the field."""


def whole(frame: Mapping[str, Any], name: str, maximum: int, default: int | None = None) -> int:
    """Return the field `name`, a whole number from 0 to `maximum`. If the field is missing, return
    `default`. Raises MessageError for another value, or if there is no default.
    """
    value = frame.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise MessageError(f"{name}: {show(value)} is not a whole number from 0 to {maximum}")
    return value


def number(frame: Mapping[str, Any], name: str) -> float | None:
    """Return the field `name`, a finite number; None if the field is missing. Raises MessageError for
    another value.
    """
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
    """Return the field `name`, a boolean; False if the field is missing. Raises MessageError for another
    value.
    """
    value = frame.get(name, False)
    if not isinstance(value, bool):
        raise MessageError(f"{name}: {show(value)} is neither true nor false")
    return value


def text(frame: Mapping[str, Any], name: str, maximum: int | None) -> str:
    """Return the first `maximum` characters of the field `name`, a text; empty if the field is missing.
    Raises MessageError for another value.
    """
    value = frame.get(name, "")
    if not isinstance(value, str):
        raise MessageError(f"{name}: {show(value)} is not a text")
    return value[:maximum]


def show(value: object) -> str:
    """Return an untrusted value as quoted ASCII text of at most 40 characters, for error messages."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "a huge number"
    return ascii(value if not isinstance(value, str) else value[:40])[:40]
