"""Typed errors of requests to the API server."""

from __future__ import annotations

_NOT_DISCOVERED = "cannot find RESTMapping"
"""Text in a rejection by the admission plugin OwnerReferencesPermissionEnforcement. It has not yet
discovered the owner's kind, whose CRD was created a moment ago.
"""
_TOO_LARGE = "request is too large"
"""Text in etcd's rejection of a large request, which the API server reports as its own error."""

_WEBHOOK = "failed calling webhook"
"""Text in the error of an API server that gets no response from a mandatory webhook."""


class ApiError(Exception):
    """The API server responded with an error, or did not respond (`code` 0)."""

    def __init__(
        self,
        code: int,
        message: str,
        reason: str = "",
        retry_after: float | None = None,
        causes: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.retry_after = retry_after
        """Seconds that the server asked to wait before a retry."""
        self.causes = causes
        """Field path and text of each fault, if the server lists them."""


class NotFound(ApiError):
    """The object does not exist (404)."""


class AlreadyExists(ApiError):
    """An object of that name already exists (409 on create)."""


class Conflict(ApiError):
    """The object has another version or uid than the caller expected (409)."""


class Gone(ApiError):
    """The resourceVersion is no longer kept (410); the caller must LIST again."""


class Invalid(ApiError):
    """The object is not valid (400, 413, 422), or too large for etcd (500)."""


class Forbidden(ApiError):
    """The request is not allowed (401, 403): missing rights, quota, admission, or a namespace under
    deletion.
    """


class TooManyRequests(ApiError):
    """The server throttles the request (429)."""


class Unavailable(ApiError):
    """The server failed, timed out or could not be reached (5xx, 0), or has not discovered a kind yet."""


class WebhookFailed(Unavailable):
    """A mandatory webhook did not respond (500). This may heal, or never."""


def from_response(
    code: int,
    message: str,
    reason: str = "",
    retry_after: float | None = None,
    causes: tuple[tuple[str, str], ...] = (),
) -> ApiError:
    """Return the typed error for a response."""
    kind: type[ApiError] = ApiError
    if code == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif code == 500 and _TOO_LARGE in message:
        kind = Invalid
    elif code == 500 and _WEBHOOK in message:
        kind = WebhookFailed
    elif code >= 500 or code == 0 or (code == 403 and _NOT_DISCOVERED in message):
        kind = Unavailable
    else:
        kind = {
            400: Invalid,
            401: Forbidden,
            403: Forbidden,
            404: NotFound,
            410: Gone,
            413: Invalid,
            422: Invalid,
            429: TooManyRequests,
        }.get(code, ApiError)
    return kind(code, message, reason, retry_after, causes)
