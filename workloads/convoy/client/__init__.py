"""The Python client of Convoy's API: `convoy.Client` and its errors.

This package needs the extra `client`. `import convoy` works without that extra.
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
    RolloutHalted,
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
    "RolloutHalted",
    "Unreachable",
    "WaitTimeout",
]
