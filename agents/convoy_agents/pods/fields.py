"""Reading the fields of a frame as from a stranger."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class MessageError(ValueError):
    """A frame does not say what its type promises; names the field."""


def whole(frame: Mapping[str, Any], name: str, most: int, default: int | None = None) -> int:
    """A whole number from 0 to `most`; `default` when it is missing."""
    value = frame.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise MessageError(f"{name}: {show(value)} is no whole number from 0 to {most}")
    return value


def number(frame: Mapping[str, Any], name: str) -> float | None:
    """A finite number; None when it is missing."""
    value = frame.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageError(f"{name}: {show(value)} is no number")
    try:
        found = float(value)
    except OverflowError as error:
        raise MessageError(f"{name}: too large") from error
    if not math.isfinite(found):
        raise MessageError(f"{name}: not finite")
    return found


def flag(frame: Mapping[str, Any], name: str) -> bool:
    """True or false; false when it is missing."""
    value = frame.get(name, False)
    if not isinstance(value, bool):
        raise MessageError(f"{name}: {show(value)} is neither true nor false")
    return value


def text(frame: Mapping[str, Any], name: str, most: int | None) -> str:
    """At most so many characters; empty when it is missing."""
    value = frame.get(name, "")
    if not isinstance(value, str):
        raise MessageError(f"{name}: {show(value)} is no text")
    return value[:most]


def show(value: object) -> str:
    """At most 40 characters of a stranger's value, quoted."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        return "a huge number"
    return ascii(value if not isinstance(value, str) else value[:40])[:40]
