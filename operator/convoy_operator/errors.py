"""What can go wrong between the operator and the API server."""

from __future__ import annotations

_NOT_DISCOVERED = "cannot find RESTMapping"
"""In a refusal by the API server's admission OwnerReferencesPermissionEnforcement: it has not yet seen the
definition of the owner's kind, which was made a moment ago.
"""
_TOO_LARGE = "request is too large"
"""In a refusal by etcd, which the API server passes on as an error of its own."""

_WEBHOOK = "failed calling webhook"
"""In the error of a server that must ask a webhook, and gets no answer."""


class ApiError(Exception):
    """The API server answered with an error, or not at all (`code` 0)."""

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
        """Seconds the server asked to wait."""
        self.causes = causes
        """Field path and text of each thing that is wrong, where the server says."""


class NotFound(ApiError):
    """There is no such object (404)."""


class AlreadyExists(ApiError):
    """An object of that name is there already (409 on create)."""


class Conflict(ApiError):
    """The object is not the version, or not the incarnation, that the caller saw (409)."""


class Gone(ApiError):
    """That resourceVersion is no longer kept (410): LIST again."""


class Invalid(ApiError):
    """The object cannot be accepted as it is (400, 413, 422), or is more than etcd takes (500)."""


class Forbidden(ApiError):
    """Not allowed (401, 403): rights, quota, admission, or a namespace that is being deleted."""


class TooManyRequests(ApiError):
    """Refused for now (429)."""


class Unavailable(ApiError):
    """The server failed, timed out, could not be reached (5xx, 0), or does not know of a kind yet."""


class WebhookFailed(Unavailable):
    """A webhook did not reply that the server must ask (500). It may heal, or never."""


def from_response(
    code: int,
    message: str,
    reason: str = "",
    retry_after: float | None = None,
    causes: tuple[tuple[str, str], ...] = (),
) -> ApiError:
    """The typed error of an answer."""
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
