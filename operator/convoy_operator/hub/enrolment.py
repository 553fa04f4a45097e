"""The Enrolment service. An agent sends a service-account token that names its node, and receives a
certificate.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any

import grpc
import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc
from convoy_controllers.resources import TOKEN_REVIEWS
from convoy_crds.terms import HUB_AUDIENCE
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway, Object
from convoy_operator.hub.ca import Authority, BadRequest
from convoy_operator.hub.call_limiter import address
from convoy_operator.limits import TokenBucket
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

log = structlog.get_logger(__name__)

_NODE_NAME = "authentication.kubernetes.io/node-name"
_MAX_TOKEN, _MAX_CSR = 16_384, 16_384
_PER_SECOND, _AT_ONCE = 2.0, 40
"""Rate limit and burst of token reviews per address, so that one address cannot delay all others."""
_MAX_PEERS = 4096
"""Maximum number of addresses with a rate limit. If there are more, the address that has gone longest
without a call is dropped.
"""
_LONGEST_WAIT = 10.0
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Throttle:
    """The rate limit of token reviews: one token bucket for each peer address."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def reserve(self, peer: str) -> float | None:
        """Return the seconds that a peer must wait, or None if its call must be refused. `peer` is gRPC's
        text for the address and the port.
        """
        caller = address(peer)
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._buckets[caller] = TokenBucket(_PER_SECOND, _AT_ONCE, self._clock)
            if len(self._buckets) > _MAX_PEERS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(caller)
        if (wait := bucket.reserve()) > _LONGEST_WAIT:
            bucket.refund()
            return None
        return wait


class Refused(Exception):
    """Raised if a caller is not entitled to a certificate. The message names the reason."""


def reviewed_node(review: Object, service_account: str) -> str:
    """Return the node that a reviewed token names.

    Raises Refused if the token is invalid, does not have the hub's audience, does not belong to the agents'
    service account, or names no node.
    """
    status = review.get("status") or {}
    if not status.get("authenticated"):
        raise Refused(f"the API server rejected the token: {status.get('error') or 'unauthenticated'}")
    if HUB_AUDIENCE not in (status.get("audiences") or ()):
        raise Refused(f"the token is not for the audience {HUB_AUDIENCE}")
    user = status.get("user") or {}
    if user.get("username") != service_account:
        raise Refused(f"the token belongs to {user.get('username')!r}, not to {service_account!r}")
    nodes = (user.get("extra") or {}).get(_NODE_NAME) or []
    if len(nodes) != 1 or not _DNS_SUBDOMAIN.fullmatch(nodes[0]):
        raise Refused("the token names no node; use a token that is bound to a pod")
    return str(nodes[0])


class Enrolment(hub_pb2_grpc.EnrolmentServicer):  # type: ignore[misc]  # generated without types
    """The Enrolment service. Every replica can serve it, because all replicas have the same CA."""

    def __init__(
        self, gateway: ApiGateway, authority: Authority, metrics: Metrics, settings: Settings
    ) -> None:
        self._gateway = gateway
        self._authority = authority
        self._metrics = metrics
        self._account = f"system:serviceaccount:{settings.namespace}:{settings.agent_service_account}"
        self._life = timedelta(hours=settings.certificate_hours)
        self._throttle = Throttle()

    async def Enrol(self, request: wire.EnrolRequest, context: Any) -> wire.EnrolReply:
        """Review the caller's token. Return a certificate for the caller's key and the node that the token
        names.
        """
        if len(request.token) > _MAX_TOKEN or len(request.csr_pem) > _MAX_CSR:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "token or certificate signing request is too large"
            )
        wait = self._throttle.reserve(context.peer())
        if wait is None:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many enrolments from this address, try again later"
            )
        await asyncio.sleep(wait or 0.0)
        try:
            node = reviewed_node(await self._review(request.token), self._account)
            certificate, ends = self._authority.agent(request.csr_pem, node, self._life)
        except (Refused, BadRequest) as why:
            self._metrics.enrolments.labels("refused").inc()
            log.warning("enrolment refused", peer=context.peer(), why=str(why))
            code = (
                grpc.StatusCode.UNAUTHENTICATED
                if isinstance(why, Refused)
                else grpc.StatusCode.INVALID_ARGUMENT
            )
            await context.abort(code, str(why))
        except errors.ApiError as fault:
            self._metrics.enrolments.labels("failed").inc()
            log.warning("token review failed, the agent will retry", error=str(fault))
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the API server could not review the token")
        self._metrics.enrolments.labels("issued").inc()
        log.info("certificate issued", node=node, ends=ends.isoformat())
        return wire.EnrolReply(certificate_pem=certificate, expires_unix=int(ends.timestamp()), node=node)

    async def _review(self, token: str) -> Object:
        return await self._gateway.create(
            TOKEN_REVIEWS,
            None,
            {
                "apiVersion": TOKEN_REVIEWS.api_version,
                "kind": TOKEN_REVIEWS.kind,
                "spec": {"token": token, "audiences": [HUB_AUDIENCE]},
            },
        )
