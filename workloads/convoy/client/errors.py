"""The errors of the client. The text of each error is a sentence for the user."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from convoy_crds.experiment import Experiment
from convoy_crds.servingjob import ServingJob
from convoy_crds.trainingjob import TrainingJob


class ConvoyError(Exception):
    """Base class of the client's errors."""


class NoCluster(ConvoyError):
    """Raised if no usable configuration of a cluster is found."""


class Unreachable(ConvoyError):
    """Raised if the API server does not respond, or if a response is interrupted."""


class Refused(ConvoyError):
    """Raised if the request does not make sense in the current state of the object."""


class ApiError(ConvoyError):
    """Raised if the API server refuses a request. `status` is the HTTP status code."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Forbidden(ApiError):
    """Raised if the user lacks a right, or is not authenticated."""


class NotFound(ApiError):
    """Raised if the object does not exist, or if the cluster does not have the object's kind."""


class AlreadyExists(ApiError):
    """Raised if an object of the same name already exists."""


class Conflict(ApiError):
    """Raised if another client has changed the object since it was read."""


@dataclass(frozen=True)
class FieldError:
    """An error in one field of an object."""

    path: str
    """Path of the field, such as `spec.roles[0].replicas`; empty if the error is about the whole object."""
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Invalid(ApiError):
    """Raised if an object is not valid. `fields` has one entry for each invalid field."""

    def __init__(self, message: str, fields: tuple[FieldError, ...] = (), status: int = 422) -> None:
        super().__init__(message, status)
        self.fields = fields


class JobEnded(ConvoyError):
    """Raised if a job has ended, so that the awaited condition can no longer occur. `job` is the last state
    of the job.
    """

    def __init__(self, message: str, job: TrainingJob) -> None:
        super().__init__(message)
        self.job = job


class JobFailed(JobEnded):
    """Raised if a job has failed. `reason` and `message` say why."""

    def __init__(self, job: TrainingJob) -> None:
        self.reason, self.message = failure(job)
        super().__init__(f"{job.metadata.name} failed: {self.reason}: {self.message}", job)


class RolloutHalted(ConvoyError):
    """Raised if the rollout of a ServingJob has halted. `job` is the last state of the job."""

    def __init__(self, message: str, job: ServingJob) -> None:
        super().__init__(message)
        self.job = job


class WaitTimeout(ConvoyError, TimeoutError):
    """Raised if the awaited condition did not occur before the timeout. `job` is the last known state of
    the job or Experiment, or None if it was never read.
    """

    def __init__(self, message: str, job: TrainingJob | ServingJob | Experiment | None) -> None:
        super().__init__(message)
        self.job = job


def failure(job: TrainingJob) -> tuple[str, str]:
    """Return the reason and message of a failed job. They come from the condition Failed, because its
    message is not shortened.
    """
    for condition in job.status.conditions:
        if condition.type == "Failed" and condition.status == "True":
            return condition.reason, condition.message
    return job.status.reason, job.status.message


_STRICT = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_BY_STATUS: dict[int, type[ApiError]] = {401: Forbidden, 403: Forbidden, 404: NotFound}


def error_of(status: int, reason: str, body: Any) -> ApiError:
    """Return the error for a response in which the API server refused a request. `body` is the text of the
    response, usually a Status object.
    """
    found = _parsed(body)
    message = str(found.get("message") or f"{status} {reason}")
    if status == 401:
        message += ": the API server rejected the credentials; check the kubeconfig or the token"
    if status == 404 and not found:
        # The API server answers with a plain text only for kinds that it does not serve.
        message += (
            ": the API server does not know this kind. Convoy is not installed in this cluster (see: helm "
            "list -A), or the kubeconfig is that of another cluster"
        )
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
