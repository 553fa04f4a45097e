"""Tests of the typed error for each kind of response."""

from __future__ import annotations

import pytest

from convoy_operator import errors

YOUNG = (
    'pods "gpt-worker-0" is forbidden: cannot set blockOwnerDeletion in this case because cannot find '
    "RESTMapping for APIVersion convoy.dev/v1alpha1 Kind TrainingJob: no matches for kind"
)


@pytest.mark.parametrize(
    ("code", "reason", "message", "kind"),
    [
        (409, "AlreadyExists", "", errors.AlreadyExists),
        (409, "Conflict", "", errors.Conflict),
        (400, "BadRequest", "", errors.Invalid),
        (422, "Invalid", "", errors.Invalid),
        (401, "Unauthorized", "", errors.Forbidden),
        (403, "Forbidden", "exceeded quota", errors.Forbidden),
        (403, "Forbidden", YOUNG, errors.Unavailable),
        (404, "NotFound", "", errors.NotFound),
        (410, "Expired", "", errors.Gone),
        (429, "TooManyRequests", "", errors.TooManyRequests),
        (503, "", "", errors.Unavailable),
        (500, "InternalError", "etcdserver: request is too large", errors.Invalid),
        (500, "InternalError", 'failed calling webhook "w": connection refused', errors.WebhookFailed),
        (413, "RequestEntityTooLarge", "limit is 3145728", errors.Invalid),
        (0, "", "", errors.Unavailable),
        (418, "", "", errors.ApiError),
    ],
)
def test_an_http_error_has_its_type(
    code: int, reason: str, message: str, kind: type[errors.ApiError]
) -> None:
    found = errors.from_response(code, message, reason, 2.0)
    assert type(found) is kind
    assert (found.code, found.message, found.reason, found.retry_after) == (code, message, reason, 2.0)
