"""What a user may see, asked of the API server and believed for a while."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import structlog

from convoy_controllers.resources import NODE_HEALTHS, TRAINING_JOBS
from convoy_operator import errors
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.gateway import Object
from convoy_operator.limits import FLOW

log = structlog.get_logger(__name__)

MOST_DECISIONS = 16_384
WAIT_SECONDS = 5.0
"""Pages wait for an answer, and have to say soon that there is none; it is not given up by then."""
REVIEW_SECONDS = 60.0
"""A question that has waited in line for so long is given up."""
SPREAD = 0.25
"""By so much of its time an answer may be forgotten earlier, so that not all are asked for anew at once."""
RETRY_SECONDS = 15.0
"""After a question that nobody answered it is asked again."""
_JOBS = {"verb": "list", "group": TRAINING_JOBS.group, "resource": TRAINING_JOBS.plural}
_NODES = {"verb": "list", "group": NODE_HEALTHS.group, "resource": NODE_HEALTHS.plural}
_LOGS = {"verb": "get", "group": "", "resource": "pods", "subresource": "log"}


class Reviewer(Protocol):
    """Who answers."""

    async def review_access(self, identity: Identity, wanted: Mapping[str, str]) -> Object:
        """`status` of a SubjectAccessReview."""
        ...


class Access(Protocol):
    """What a session may see."""

    @property
    def undecided(self) -> bool:
        """Whether nobody has said yet if it may see some of what was asked for last."""
        ...

    async def namespaces(self, present: Iterable[str]) -> frozenset[str]:
        """Of these, the ones whose jobs it may list."""
        ...

    async def everywhere(self) -> bool:
        """Whether it may list the jobs of all namespaces, also of those that have none yet."""
        ...

    async def nodes(self) -> bool:
        """Whether it may see nodes and what is known of them."""
        ...

    async def logs(self, namespace: str) -> bool:
        """Whether it may read the logs of pods there."""
        ...


class FullAccess:
    """For a dashboard that asks nobody who they are."""

    undecided = False

    async def namespaces(self, present: Iterable[str]) -> frozenset[str]:
        """See Access."""
        return frozenset(present)

    async def everywhere(self) -> bool:
        """See Access."""
        return True

    async def nodes(self) -> bool:
        """See Access."""
        return True

    async def logs(self, namespace: str) -> bool:
        """See Access."""
        return True


@dataclass(slots=True)
class _Decision:
    allowed: bool | None = None
    """None while nobody has answered."""
    expires: float = float("-inf")
    """So long it is believed."""
    requested_at: float = float("-inf")
    review: asyncio.Task[None] | None = None


class AccessReviews:
    """What SubjectAccessReviews said, for all sessions: of one user's right the API server is asked once."""

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
        """Whether that user may do so; None when nobody says. What was said before holds meanwhile."""
        decision = self._known.setdefault((identity, tuple(sorted(wanted.items()))), _Decision())
        now = self._clock()
        if now < decision.expires:
            return decision.allowed
        if decision.review is None or decision.review.done():
            self._known.move_to_end((identity, tuple(sorted(wanted.items()))))
            while len(self._known) > MOST_DECISIONS:
                self._known.popitem(last=False)
            decision.requested_at = now
            decision.review = asyncio.create_task(self._review(identity, wanted, decision))
        # One that waits in a long line is waited for once, not at every update of a page.
        wait = max(0.0, decision.requested_at + WAIT_SECONDS - now)
        await asyncio.wait({decision.review}, timeout=wait)
        return decision.allowed

    async def _review(self, identity: Identity, wanted: Mapping[str, str], decision: _Decision) -> None:
        # Users take turns: nobody stands behind all namespaces of another.
        FLOW.set(identity)
        lasts = min(self._seconds, RETRY_SECONDS)
        try:
            request = self._reviewer.review_access(identity, wanted)
            status = await asyncio.wait_for(request, REVIEW_SECONDS)
            decision.allowed = status.get("allowed") is True and status.get("denied") is not True
            lasts = self._seconds * (1.0 - SPREAD * self._spread())
        except (errors.Unavailable, errors.TooManyRequests, TimeoutError) as fault:
            log.warning("no answer about a right", user=identity.user, error=str(fault))
        except errors.ApiError as fault:
            # It is there, and does not say yes.
            log.warning("a right cannot be asked for", user=identity.user, error=str(fault))
            decision.allowed = None
        decision.expires = self._clock() + lasts


class ReviewedAccess:
    """As SubjectAccessReviews say. While nobody answers, what was said before holds, and nothing else."""

    def __init__(self, reviews: AccessReviews, identity: Identity) -> None:
        self._reviews = reviews
        self._identity = identity
        self._undecided: dict[str, bool] = {}

    @property
    def undecided(self) -> bool:
        """See Access."""
        return any(self._undecided.values())

    async def namespaces(self, present: Iterable[str]) -> frozenset[str]:
        """See Access."""
        if await self.everywhere():
            self._undecided["namespaces"] = False
            return frozenset(present)
        requested = list(present)
        found = await asyncio.gather(*(self._decide({**_JOBS, "namespace": one}) for one in requested))
        self._undecided["namespaces"] = None in found
        return frozenset(one for one, may in zip(requested, found, strict=True) if may)

    async def everywhere(self) -> bool:
        """See Access."""
        return await self._may("everywhere", _JOBS)

    async def nodes(self) -> bool:
        """See Access."""
        return await self._may("nodes", _NODES)

    async def logs(self, namespace: str) -> bool:
        """See Access."""
        return await self._may("logs", {**_LOGS, "namespace": namespace})

    async def _may(self, what: str, wanted: Mapping[str, str]) -> bool:
        found = await self._decide(wanted)
        self._undecided[what] = found is None
        return found is True

    async def _decide(self, wanted: Mapping[str, str]) -> bool | None:
        return await self._reviews.may(self._identity, wanted)
