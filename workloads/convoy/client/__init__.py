"""The client of the API for Python programs: `convoy.Client`, its collections and its errors.

Needs the extra `client`, which `import convoy` alone does not.
"""

from convoy.client.client import Client
from convoy.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConvoyError,
    FieldError,
    Forbidden,
    Invalid,
    JobEnded,
    JobFailed,
    NoCluster,
    NotFound,
    Refused,
    Unreachable,
    WaitTimeout,
)

__all__ = [
    "AlreadyExists",
    "ApiError",
    "Client",
    "Conflict",
    "ConvoyError",
    "FieldError",
    "Forbidden",
    "Invalid",
    "JobEnded",
    "JobFailed",
    "NoCluster",
    "NotFound",
    "Refused",
    "Unreachable",
    "WaitTimeout",
]
