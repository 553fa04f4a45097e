"""A JSON file of torch, read within bounds, and its fields with their paths."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from convoy_workloads.traces.findings import Finding, InvalidTrace, Rule
from convoy_workloads.traces.torch_json.names import escape_names
from convoy_workloads.traces.wire.content import load
from convoy_workloads.traces.wire.limits import LIMITS, Limits

LARGEST = 2**63
"""Whole numbers in these files are smaller than this."""


def load_json(path: Path, limits: Limits = LIMITS) -> dict[str, Any]:
    """Return the object in a JSON file, which may be compressed. Raises InvalidTrace for anything else."""
    return parse(load(path, limits), str(path), limits)


def parse(data: bytes, source: str = "", limits: Limits = LIMITS) -> dict[str, Any]:
    """Return the object in JSON bytes. Raises InvalidTrace with the place of the error.

    Names that torch has not escaped are read as the program gave them.
    """
    try:
        found = _load(data)
    except UnicodeDecodeError as error:
        raise _invalid(Rule.MALFORMED, "the text is not UTF-8", source, error.start) from None
    except json.JSONDecodeError as error:
        raise _invalid(Rule.MALFORMED, f"{error.msg} in line {error.lineno}", source, error.pos) from None
    except RecursionError:
        raise _invalid(
            Rule.TOO_DEEP, f"lists and objects nest more than {limits.depth} levels", source
        ) from None
    except ValueError as error:
        raise _invalid(Rule.MALFORMED, str(error), source) from None
    if not isinstance(found, dict):
        raise _invalid(
            Rule.MALFORMED, f"the file must hold a JSON object, not {type(found).__name__}", source
        )
    if _deeper(found, limits.depth):
        raise _invalid(Rule.TOO_DEEP, f"lists and objects nest more than {limits.depth} levels", source)
    return found


def _load(data: bytes) -> Any:
    """Return the value in JSON bytes. Raises the error of the bytes as they are."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        try:
            return json.loads(escape_names(data).decode(), parse_constant=_refuse)
        except (UnicodeDecodeError, json.JSONDecodeError):
            raise error from None


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _deeper(value: Any, most: int) -> bool:
    """Return True if lists and objects nest more than `most` levels."""
    level = [value]
    for _ in range(most):
        level = [one for outer in level for one in _inner(outer) if isinstance(one, list | dict)]
        if not level:
            return False
    return True


def _inner(value: Any) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value)


def _invalid(rule: Rule, text: str, source: str, offset: int | None = None) -> InvalidTrace:
    return InvalidTrace([Finding(rule, text, offset=offset)], source)


class FieldError(ValueError):
    """Raised for a field of the wrong type. The message names its path."""


def whole(owner: Mapping[str, Any], name: str, path: str, default: int | None = None) -> int:
    """Return a whole number of at least 0. Raises FieldError for another value, or none without a default."""
    value = owner.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
        raise FieldError(f"{path}.{name}: must be a whole number of at least 0, not {_short(value)}")
    return value


def microseconds(owner: Mapping[str, Any], name: str, path: str) -> int:
    """Return the time in a field as nanoseconds; the field has microseconds. Raises FieldError unless the
    field is a number of at least 0.
    """
    value = owner.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(f"{path}.{name}: must be a number, not {_short(value)}")
    if not math.isfinite(value) or not 0 <= value < LARGEST / 2000:
        raise FieldError(f"{path}.{name}: must be a time of at least 0 microseconds, not {_short(value)}")
    return round(value * 1000)


def clean(text: str) -> str:
    """Return a text with `?` for each half of a surrogate pair: JSON may hold such halves, UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def text(owner: Mapping[str, Any], name: str, path: str) -> str:
    """Return a text that UTF-8 can hold. Raises FieldError for another value."""
    value = owner.get(name)
    if not isinstance(value, str):
        raise FieldError(f"{path}.{name}: must be a text, not {_short(value)}")
    return clean(value)


def bounded(value: Any, limit: int = 2**62) -> int | None:
    """Return a whole number of at least 0 and below `limit`; None for any other value."""
    right = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit
    return value if right else None


def mapping(value: Any) -> dict[str, Any]:
    """Return an object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a list; an empty one for any other value."""
    return value if isinstance(value, list) else []


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
