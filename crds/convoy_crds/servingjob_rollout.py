"""The part of a ServingJob's spec that defines how replicas are replaced, restarted and reached."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from convoy_crds.meta import Model, Rule, validated

ENDPOINT_LAG_SECONDS = 3
"""Seconds until every proxy has learnt that a pod became ready, or that a pod is being deleted."""
TEARDOWN_SECONDS = 10
"""Seconds that a pod gets after its drain, to end its ranks and its launcher."""
DEFAULT_PORT = 8080
DEFAULT_DRAIN_SECONDS = 30
PERCENT = r"^(100|[0-9]{1,2})%$"
_MAX_SHARE = 10_000
_SHARE: dict[str, JsonValue] = {"pattern": PERCENT, "minimum": 0, "maximum": _MAX_SHARE}
"""Limits in the schema. The API server applies the pattern to texts, and the other limits to numbers."""

IntOrPercent = Annotated[
    Annotated[int, Field(strict=True, ge=0, le=_MAX_SHARE)] | Annotated[str, Field(pattern=PERCENT)],
    Field(json_schema_extra=_SHARE),
]
"""A number of replicas, or a percentage of the desired replicas, such as `25%`."""


def share(value: int | str, whole: int, *, up: bool) -> int:
    """Return the number of replicas that an `IntOrPercent` means for `whole` desired replicas. `up` rounds a
    percentage up, otherwise down.
    """
    if isinstance(value, int):
        return value
    exact = int(value.removesuffix("%")) * whole / 100
    return math.ceil(exact) if up else math.floor(exact)


class Rollout(Model):
    """Settings for replacing the replicas of an old revision by those of a new one."""

    model_config = validated(
        Rule(
            "!((has(self.maxSurge) && self.maxSurge in [dyn(0), dyn('0%')])"
            " && (!has(self.maxUnavailable) || self.maxUnavailable in [dyn(0), dyn('0%')]))",
            "maxSurge and maxUnavailable must not both be 0: no replica could be replaced",
            ".maxSurge",
        ),
    )

    max_surge: IntOrPercent = "25%"
    """Maximum number of replicas above the desired number, as a number or as a percentage that is rounded
    up.
    """
    max_unavailable: IntOrPercent = 0
    """Maximum number of desired replicas that a rollout may make unavailable, as a number or as a percentage
    that is rounded down. A single replica is always replaced by a surge first, if the surge finds a node.
    """
    drain_seconds: Annotated[int, Field(ge=0, le=86_400)] = DEFAULT_DRAIN_SECONDS
    """Number of seconds for which a replica that is being deleted may finish its requests in flight."""
    progress_deadline_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """Number of seconds without progress after which the rollout halts. While a replica reports progress of
    loading its model, the time does not count.
    """
    paused: bool = False
    """True: no replica is replaced because of its revision. Faults are still repaired."""
    revision: Annotated[str, Field(pattern=r"^[a-z0-9]*$", max_length=32)] = ""
    """Name of a stored revision, as `status.revisions` shows it. All replicas run this revision until the
    field is empty again. Empty: they run the revision that the spec defines.
    """


class AuthType(StrEnum):
    """Authentication of requests."""

    NONE = "None"
    """Every client that can reach the replicas may send requests."""
    TOKEN = "Token"  # noqa: S105 - the name of a choice, not a token
    """Requests need a bearer token: the value `token` of the Secret `secretName`."""


class Auth(Model):
    """Authentication of requests. An engine checks the token. A program of your own must check it itself: the
    variable CONVOY_AUTH_TOKEN_FILE names the file with the token.
    """

    model_config = validated(
        Rule(
            "(has(self.type) && self.type == 'Token') == has(self.secretName)",
            "type Token needs secretName, and secretName needs type Token",
            ".secretName",
        ),
    )

    type: AuthType = AuthType.NONE
    secret_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Secret in the job's namespace. Its key `token` holds the bearer token."""


class ServiceType(StrEnum):
    """Type of the Service, as in Kubernetes."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class Service(Model):
    """The Service through which clients reach the replicas. It has the name of the job."""

    role: Annotated[str, Field(max_length=24)] | None = None
    """Role that receives the requests. If absent, it is the scaled role."""
    port: Annotated[int, Field(ge=1024, le=65_535)] = DEFAULT_PORT
    """Port of the Service, and port on which slot 0 of each replica listens."""
    type: ServiceType = ServiceType.CLUSTER_IP
    auth: Auth = Field(default_factory=Auth)


class ServingRecovery(Model):
    """Settings for the recovery of replicas from faults."""

    max_restarts: Annotated[int, Field(ge=0, le=100)] = 10
    """Maximum number of counted restarts of one replica within `windowSeconds`. After the next fault the
    replica counts as failed, and Convoy restarts it again only after `windowSeconds`.
    """
    window_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600
    """Length of the sliding window for `maxRestarts`, in seconds."""
    hang_seconds: Annotated[int, Field(ge=5, le=86_400)] = 60
    """Number of seconds without a heartbeat of the engine's compute loop after which a rank counts as hung
    and is restarted. A hung rank stops being ready much earlier.
    """


class Slo(Model):
    """Service level objectives. The condition `SLOMet` shows whether the replicas meet them."""

    p95_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    """Maximum 95th percentile of a request's duration, in milliseconds."""
    ttft_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    """Maximum 95th percentile of the time to the first token, in milliseconds."""
