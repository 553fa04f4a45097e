"""The errors of the front in the form of OpenAI's API: message, type, field and code."""

from __future__ import annotations

import math

import orjson

Headers = list[tuple[bytes, bytes]]


class RequestError(Exception):
    """An error that ends a request with an HTTP status."""

    def __init__(
        self, status: int, message: str, field: str | None = None, code: str | None = None, retry: float = 0.0
    ) -> None:
        """`field`: the wrong field of the request. `code`: a stable word for programs. `retry`: seconds after
        which the client may send the request again; 0 if it must change the request.
        """
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.code = code
        self.retry = retry

    @property
    def headers(self) -> Headers:
        """Return the headers that belong to the error."""
        found: Headers = []
        if self.retry:
            found.append((b"retry-after", str(math.ceil(self.retry)).encode()))
        if self.status == 401:
            found.append((b"www-authenticate", b"Bearer"))
        return found

    def body(self) -> bytes:
        """Return the error as JSON."""
        return orjson.dumps({"error": self.content()})

    def content(self) -> dict[str, str | None]:
        """Return the entries of the error."""
        return {"message": self.message, "type": _type(self.status), "param": self.field, "code": self.code}


def _type(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 404:
        return "not_found_error"
    if status == 429:
        return "rate_limit_error"
    if status < 500:
        return "invalid_request_error"
    return "server_error"


def queue_full(limit: int, seconds: float) -> RequestError:
    """Return the error for a request that finds a full queue."""
    return RequestError(
        429,
        f"the queue of this replica is full ({limit} requests wait): send the request again after the time "
        "in Retry-After",
        code="queue_full",
        retry=seconds,
    )


def not_ready(reason: str, seconds: float = 1.0) -> RequestError:
    """Return the error for a request that a replica cannot accept at present."""
    return RequestError(503, f"{reason}: send the request again", code="not_ready", retry=seconds)
