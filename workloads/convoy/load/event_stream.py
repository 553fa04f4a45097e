"""The events of a streamed response, in the forms that servers of OpenAI's API send.

Server-sent events as WHATWG's HTML standard defines them: lines end with LF or CRLF, the blank after `data:`
is optional, an event may have several lines of data, and comments and other fields do not count.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any

DONE = b"[DONE]"
"""Data of the last event."""
EVENT_BYTES = 16 << 20
"""Maximum number of bytes of an event."""
_TEXTS = ("content", "reasoning_content", "reasoning")
"""Fields of a chat's delta that have generated text."""


class MalformedStream(ValueError):
    """Raised if a response is no stream of such events. The message says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, as far as a load depends on it."""

    text: bool = False
    """True if the event has generated text."""
    error: str = ""
    """Code or type of the error that the event reports; empty if it reports none."""
    message: str = ""
    """Text of that error."""


async def data_of(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each event. Raises MalformedStream if an event is too large."""
    rest, size, data = b"", 0, list[bytes]()
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if field := line.removesuffix(b"\r"):
                if field.startswith(b"data:"):
                    data.append(field[5:].removeprefix(b" "))
                    size += len(field)
            elif data:
                if event := b"\n".join(data):  # An event without data is not dispatched.
                    yield event
                size, data = 0, []
        if size + len(rest) > EVENT_BYTES:
            raise MalformedStream(f"an event has more than {EVENT_BYTES} bytes")


def parse(data: bytes) -> Event:
    """Return the event with this data, other than `DONE`. Raises MalformedStream."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as invalid:
        raise MalformedStream(f"an event has no valid JSON: {_shown(data)}") from invalid
    if not isinstance(found, dict):
        raise MalformedStream(f"an event is no object: {_shown(data)}")
    # vLLM has reported errors as the event itself.
    error = found if found.get("object") == "error" else found.get("error")
    if error:
        return _error(error)
    choices = found.get("choices")
    return Event(text=isinstance(choices, list) and any(_has_text(choice) for choice in choices))


def _error(error: Any) -> Event:
    if not isinstance(error, dict):
        return Event(error="error", message=str(error))
    return Event(
        error=str(error.get("code") or error.get("type") or "error"), message=str(error.get("message"))
    )


def _has_text(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    parts = [delta.get(name) for name in _TEXTS] if isinstance(delta, dict) else []
    return bool(choice.get("text") or any(parts))


def _shown(data: bytes) -> str:
    return data[:80].decode(errors="replace")
