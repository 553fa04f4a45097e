"""The typed errors of requests to the API server."""

from __future__ import annotations

_NOT_DISCOVERED = "cannot find RESTMapping"
"""Text of a rejection by the admission plugin OwnerReferencesPermissionEnforcement. The plugin has not
discovered the owner's kind yet, because its CRD was created a moment ago.
"""
_TOO_LARGE = "request is too large"
"""Text of etcd's rejection of a large request. The API server reports that rejection as code 500."""

_WEBHOOK = "failed calling webhook"
"""Text of the API server's error for a mandatory webhook that does not respond."""


class ApiError(Exception):
    """The API server responded with an error, or did not respond. `code` is the HTTP status, 0 without a
    response.
    """

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
        """Seconds to wait before a retry, as the server requested; None if it did not."""
        self.causes = causes
        """Pairs of field path and text for each fault that the server lists."""


class NotFound(ApiError):
    """The object does not exist (404)."""


class AlreadyExists(ApiError):
    """An object of that name already exists (409 on create)."""


class Conflict(ApiError):
    """The object's version or uid differs from the one that the caller expected (409)."""


class Gone(ApiError):
    """The API server no longer keeps this resourceVersion (410), so the caller must LIST again."""


class Invalid(ApiError):
    """The object is not valid (400, 413, 422), or too large for etcd (500)."""


class Forbidden(ApiError):
    """The request is not allowed (401, 403). Causes are missing rights, a quota, admission, or a namespace
    that is being deleted.
    """


class TooManyRequests(ApiError):
    """The server throttles the request (429)."""


class Unavailable(ApiError):
    """The server failed, timed out or could not be reached (5xx, 0), or it has not discovered a kind yet."""


class WebhookFailed(Unavailable):
    """A mandatory webhook did not respond (500). The fault may be temporary or permanent."""


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
