"""What may go wrong; the text of each is a sentence for people."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from convoy_crds.trainingjob import TrainingJob


class ConvoyError(Exception):
    """Any error of the client's."""


class NoCluster(ConvoyError):
    """No configuration leads to a cluster."""


class Unreachable(ConvoyError):
    """The API server does not answer, or breaks off."""


class Refused(ConvoyError):
    """What is asked for makes no sense for the object as it is."""


class ApiError(ConvoyError):
    """The API server refused a request; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Forbidden(ApiError):
    """The user may not do this, or is not known."""


class NotFound(ApiError):
    """There is no such object, or the cluster has no such kind."""


class AlreadyExists(ApiError):
    """An object of that name is there."""


class Conflict(ApiError):
    """The object has changed meanwhile."""


@dataclass(frozen=True)
class FieldError:
    """One thing that is wrong with an object."""

    path: str
    """The field, such as `spec.roles[0].replicas`; empty when it is about the whole object."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Invalid(ApiError):
    """The object is not valid; `fields` says what is wrong where."""

    def __init__(self, message: str, fields: tuple[FieldError, ...] = (), status: int = 422) -> None:
        super().__init__(message, status)
        self.fields = fields


class JobEnded(ConvoyError):
    """A job has ended, and what was waited for can no longer come; `job` is how it ended."""

    def __init__(self, message: str, job: TrainingJob) -> None:
        super().__init__(message)
        self.job = job


class JobFailed(JobEnded):
    """A job has failed; `reason` and `message` are those of its status."""

    def __init__(self, job: TrainingJob) -> None:
        self.reason, self.message = failure(job)
        super().__init__(f"{job.metadata.name} failed: {self.reason}: {self.message}", job)


class WaitTimeout(ConvoyError, TimeoutError):
    """What was waited for did not come in time; `job` is where it stood, if it was seen at all."""

    def __init__(self, message: str, job: TrainingJob | None) -> None:
        super().__init__(message)
        self.job = job


def failure(job: TrainingJob) -> tuple[str, str]:
    """Reason and message of a job that failed: of its condition Failed, which is not cut short."""
    for condition in job.status.conditions:
        if condition.type == "Failed" and condition.status == "True":
            return condition.reason, condition.message
    return job.status.reason, job.status.message


_STRICT = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_BY_STATUS: dict[int, type[ApiError]] = {401: Forbidden, 403: Forbidden, 404: NotFound}


def error_of(status: int, reason: str, body: Any) -> ApiError:
    """The error that an answer of the API server stands for. `body`: its text, a Status object or not."""
    found = _parsed(body)
    message = str(found.get("message") or f"{status} {reason}")
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
