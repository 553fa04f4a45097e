"""Values and errors as short texts for messages. Standard library only."""

from __future__ import annotations

import json
from typing import Any

MAX_CHARS = 60


def shown(value: Any, most: int = MAX_CHARS) -> str:
    """Return a value as JSON on one line, as users write it in a manifest or a request: `true` instead of
    `True`. A longer text is cut after `most` characters.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RuntimeError):  # RecursionError is a RuntimeError.
        return f"a value of type {type(value).__name__}"
    # JSON may hold half of a surrogate pair, which no output can encode.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[:most]}..."


def _plain(value: Any) -> Any:
    """Return a scalar of numpy or torch as a number, and any other object as text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


def error_line(error: BaseException) -> str:
    """Return an error as one line: its type and its message; the type alone if there is no message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
