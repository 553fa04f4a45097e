"""The errors of the client. The text of each error is a sentence for users."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from convoy_crds.trainingjob import TrainingJob


class ConvoyError(Exception):
    """Base class of the client's errors."""


class NoCluster(ConvoyError):
    """No usable configuration of a cluster was found."""


class Unreachable(ConvoyError):
    """The API server does not respond, or a response was interrupted."""


class Refused(ConvoyError):
    """The request makes no sense in the object's current state."""


class ApiError(ConvoyError):
    """The API server refused a request. `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Forbidden(ApiError):
    """The user lacks the right, or is not authenticated."""


class NotFound(ApiError):
    """The object does not exist, or the cluster does not have its kind."""


class AlreadyExists(ApiError):
    """An object of that name exists."""


class Conflict(ApiError):
    """The object was changed by another client."""


@dataclass(frozen=True)
class FieldError:
    """An error in one field of an object."""

    path: str
    """The field, such as `spec.roles[0].replicas`; empty for an error of the whole object."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Invalid(ApiError):
    """The object is not valid. `fields` has one entry for each wrong field."""

    def __init__(self, message: str, fields: tuple[FieldError, ...] = (), status: int = 422) -> None:
        super().__init__(message, status)
        self.fields = fields


class JobEnded(ConvoyError):
    """The job ended, so the awaited condition can no longer occur. `job` is its last state."""

    def __init__(self, message: str, job: TrainingJob) -> None:
        super().__init__(message)
        self.job = job


class JobFailed(JobEnded):
    """The job failed. `reason` and `message` are those of its status."""

    def __init__(self, job: TrainingJob) -> None:
        self.reason, self.message = failure(job)
        super().__init__(f"{job.metadata.name} failed: {self.reason}: {self.message}", job)


class WaitTimeout(ConvoyError, TimeoutError):
    """The awaited condition did not occur in time. `job` is the last known state, or None if it was never
    read.
    """

    def __init__(self, message: str, job: TrainingJob | None) -> None:
        super().__init__(message)
        self.job = job


def failure(job: TrainingJob) -> tuple[str, str]:
    """Return reason and message of a failed job: those of the condition Failed, which are not shortened."""
    for condition in job.status.conditions:
        if condition.type == "Failed" and condition.status == "True":
            return condition.reason, condition.message
    return job.status.reason, job.status.message


_STRICT = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_BY_STATUS: dict[int, type[ApiError]] = {401: Forbidden, 403: Forbidden, 404: NotFound}


def error_of(status: int, reason: str, body: Any) -> ApiError:
    """Return the error for a refusing response of the API server. `body` is its text, usually a Status
    object.
    """
    found = _parsed(body)
    message = str(found.get("message") or f"{status} {reason}")
    if status == 401:
        message += ": the API server rejected the credentials; check the kubeconfig or the token"
    if status == 422:
        return Invalid(message, _causes(found))
    if status == 400 and "strict decoding error" in message:
        fields = tuple(
            FieldError(path, f"{which} field") for which, path in dict.fromkeys(_STRICT.findall(message))
        )
        return Invalid(message, fields, status)
    if status == 409:
        exists = found.get("reason") == "AlreadyExists"
        return AlreadyExists(message, status) if exists else Conflict(message, status)
    return _BY_STATUS.get(status, ApiError)(message, status)


def _parsed(body: Any) -> dict[str, Any]:
    try:
        found = json.loads(body or "")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _causes(found: dict[str, Any]) -> tuple[FieldError, ...]:
    causes = (found.get("details") or {}).get("causes") or []
    named = ((str(one.get("field", "")), str(one.get("message", ""))) for one in causes)
    return tuple(FieldError("" if path == "<nil>" else path, text) for path, text in named)
