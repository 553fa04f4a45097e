"""The instance metadata service of Amazon EC2, version 2.

Sources: Amazon EC2 User Guide, "Spot Instance interruption notices" (`spot/instance-action`: status 404
without a notice; `action` and `time` with one, two minutes before the end), "EC2 instance rebalance
recommendations" (`events/recommendations/rebalance`: `noticeTime`) and "Use the Instance Metadata Service"
(a PUT gives a session token; a request without a valid one gets status 401).
"""

from __future__ import annotations

from convoy_agents.spot.endpoint import Endpoint, Reply
from convoy_agents.spot.source import Finding, Findings, SourceError, unix_seconds
from convoy_crds.spotpool_status import NoticeKind

TOKEN_SECONDS = 21600
"""Requested lifetime of the session token, the maximum."""
TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path
ACTION_PATH = "/latest/meta-data/spot/instance-action"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"
ACTIONS = ("terminate", "stop", "hibernate")


class Ec2Metadata:
    """The notices of an EC2 instance."""

    def __init__(self, endpoint: Endpoint | None = None) -> None:
        self._endpoint = endpoint or Endpoint()
        self._token = ""

    async def poll(self) -> tuple[Finding, ...]:
        """Return the interruption and the rebalance recommendation that hold. Raises SourceError if the
        service gives no valid reply.
        """
        found = Findings()
        with found.part() as part:
            action = await self._get(ACTION_PATH)
            if action.status == 200:
                part.append(interruption(action))
        with found.part() as part:
            rebalance = await self._get(REBALANCE_PATH)
            if rebalance.status == 200:
                unix_seconds(rebalance.json().get("noticeTime"), "noticeTime")
                part.append(Finding(NoticeKind.REBALANCE))
        return found.all()

    async def _get(self, path: str) -> Reply:
        if not self._token:
            self._token = await self._new_token()
        reply = await self._endpoint.request("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if reply.status == 401:
            self._token = ""
            raise SourceError(f"{path}: the session token is no longer valid")
        if reply.status not in (200, 404):
            raise SourceError(f"{path}: status {reply.status} instead of 200 or 404")
        return reply

    async def _new_token(self) -> str:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        reply = await self._endpoint.request("PUT", TOKEN_PATH, lifetime)
        token = reply.text()
        if reply.status != 200 or not token.isascii() or not token.isprintable() or not token:
            raise SourceError(f"{TOKEN_PATH}: status {reply.status}, or no token")
        return token


def interruption(reply: Reply) -> Finding:
    """Return the interruption in a reply of `spot/instance-action`. Raises SourceError if it is invalid."""
    action = reply.json()
    if action.get("action") not in ACTIONS:
        raise SourceError(f"action: {str(action.get('action'))[:40]!r} is not one of {', '.join(ACTIONS)}")
    return Finding(deadline=unix_seconds(action.get("time"), "time"))
