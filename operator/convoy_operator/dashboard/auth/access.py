"""The permissions of users. SubjectAccessReviews of the API server decide them, and the decisions are
cached.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import structlog

from convoy_controllers.resources import NODE_HEALTHS, TRAINING_JOBS, Resource
from convoy_operator import errors
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.gateway import Object
from convoy_operator.limits import FLOW

log = structlog.get_logger(__name__)

MAX_DECISIONS = 16_384
WAIT_SECONDS = 5.0
"""Seconds that a page waits for the decision of a review. After that the page continues without a decision,
and the review continues.
"""
REVIEW_SECONDS = 60.0
"""Timeout of a review in seconds, including its time in the queue."""
SPREAD = 0.25
"""A decision may expire early by up to this share of its lifetime. The actual share is random, so decisions
do not all expire at the same time.
"""
RETRY_SECONDS = 15.0
"""Maximum number of seconds until a review that brought no decision is repeated."""
_LOGS = {"verb": "get", "group": "", "resource": "pods", "subresource": "log"}


def _list(resource: Resource) -> Mapping[str, str]:
    return {"verb": "list", "group": resource.group, "resource": resource.plural}


class Reviewer(Protocol):
    """A source of SubjectAccessReviews."""

    async def review_access(self, identity: Identity, wanted: Mapping[str, str]) -> Object:
        """Return the `status` of a SubjectAccessReview for this user and permission."""
        ...


class Access(Protocol):
    """The permissions of a session."""

    @property
    def undecided(self) -> bool:
        """True if a permission was checked and the last check brought no decision."""
        ...

    async def namespaces(self, present: Iterable[str], resource: Resource = TRAINING_JOBS) -> frozenset[str]:
        """Return the given namespaces whose objects of this resource the session may list."""
        ...

    async def everywhere(self, resource: Resource = TRAINING_JOBS) -> bool:
        """Return True if the session may list the objects of this resource in all namespaces."""
        ...

    async def nodes(self) -> bool:
        """Return True if the session may see nodes and their health."""
        ...

    async def logs(self, namespace: str) -> bool:
        """Return True if the session may read logs of pods in the namespace."""
        ...


class FullAccess:
    """All permissions, for a dashboard without authentication."""

    undecided = False

    async def namespaces(self, present: Iterable[str], resource: Resource = TRAINING_JOBS) -> frozenset[str]:
        """See `Access.namespaces`."""
        return frozenset(present)

    async def everywhere(self, resource: Resource = TRAINING_JOBS) -> bool:
        """See `Access.everywhere`."""
        return True

    async def nodes(self) -> bool:
        """See `Access.nodes`."""
        return True

    async def logs(self, namespace: str) -> bool:
        """See `Access.logs`."""
        return True


@dataclass(slots=True)
class _Decision:
    allowed: bool | None = None
    """True if the user has the permission; None if no review has brought a decision."""
    expires: float = float("-inf")
    """Monotonic time in seconds after which the review is repeated."""
    requested_at: float = float("-inf")
    review: asyncio.Task[None] | None = None


class AccessReviews:
    """A cache of SubjectAccessReviews. All sessions of a user share its decisions."""

    def __init__(
        self,
        reviewer: Reviewer,
        seconds: float,
        clock: Callable[[], float] = monotonic,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._reviewer = reviewer
        self._seconds = seconds
        self._clock = clock
        self._spread = spread
        self._known: OrderedDict[tuple[Identity, tuple[tuple[str, str], ...]], _Decision] = OrderedDict()

    async def may(self, identity: Identity, wanted: Mapping[str, str]) -> bool | None:
        """Return True if the user has the permission, False if not, and None if there is no decision.

        While the API server does not answer, an expired decision stays valid.
        """
        decision = self._known.setdefault((identity, tuple(sorted(wanted.items()))), _Decision())
        now = self._clock()
        if now < decision.expires:
            return decision.allowed
        if decision.review is None or decision.review.done():
            self._known.move_to_end((identity, tuple(sorted(wanted.items()))))
            while len(self._known) > MAX_DECISIONS:
                self._known.popitem(last=False)
            decision.requested_at = now
            decision.review = asyncio.create_task(self._review(identity, wanted, decision))
        # Limit the wait to WAIT_SECONDS after the start of the review, not after this call. A slow review
        # then delays only the first update of the page: later updates do not wait for it again.
        wait = max(0.0, decision.requested_at + WAIT_SECONDS - now)
        await asyncio.wait({decision.review}, timeout=wait)
        return decision.allowed

    async def _review(self, identity: Identity, wanted: Mapping[str, str], decision: _Decision) -> None:
        # Queue the request under the user's identity. The queue serves users in turn, so one user's many
        # namespaces do not delay another user.
        FLOW.set(identity)
        lasts = min(self._seconds, RETRY_SECONDS)
        try:
            request = self._reviewer.review_access(identity, wanted)
            status = await asyncio.wait_for(request, REVIEW_SECONDS)
            decision.allowed = status.get("allowed") is True and status.get("denied") is not True
            lasts = self._seconds * (1.0 - SPREAD * self._spread())
        except (errors.Unavailable, errors.TooManyRequests, TimeoutError) as fault:
            log.warning(
                "permission not reviewed: no answer from the API server", user=identity.user, error=str(fault)
            )
        except errors.ApiError as fault:
            # The API server responded with an error instead of a decision. Drop the earlier decision: it
            # stays valid only while the API server does not respond.
            log.warning(
                "permission not reviewed: the API server refused the review",
                user=identity.user,
                error=str(fault),
            )
            decision.allowed = None
        decision.expires = self._clock() + lasts


class ReviewedAccess:
    """The permissions of one user. While the API server does not answer, earlier decisions stay valid."""

    def __init__(self, reviews: AccessReviews, identity: Identity) -> None:
        self._reviews = reviews
        self._identity = identity
        self._undecided: dict[str, bool] = {}

    @property
    def undecided(self) -> bool:
        """See `Access.undecided`."""
        return any(self._undecided.values())

    async def namespaces(self, present: Iterable[str], resource: Resource = TRAINING_JOBS) -> frozenset[str]:
        """See `Access.namespaces`."""
        what = f"namespaces of {resource.plural}"
        if await self.everywhere(resource):
            self._undecided[what] = False
            return frozenset(present)
        requested = list(present)
        wanted = _list(resource)
        found = await asyncio.gather(*(self._decide({**wanted, "namespace": one}) for one in requested))
        self._undecided[what] = None in found
        return frozenset(one for one, may in zip(requested, found, strict=True) if may)

    async def everywhere(self, resource: Resource = TRAINING_JOBS) -> bool:
        """See `Access.everywhere`."""
        return await self._may(f"all {resource.plural}", _list(resource))

    async def nodes(self) -> bool:
        """See `Access.nodes`."""
        return await self._may("nodes", _list(NODE_HEALTHS))

    async def logs(self, namespace: str) -> bool:
        """See `Access.logs`."""
        return await self._may("logs", {**_LOGS, "namespace": namespace})

    async def _may(self, what: str, wanted: Mapping[str, str]) -> bool:
        found = await self._decide(wanted)
        self._undecided[what] = found is None
        return found is True

    async def _decide(self, wanted: Mapping[str, str]) -> bool | None:
        return await self._reviews.may(self._identity, wanted)
