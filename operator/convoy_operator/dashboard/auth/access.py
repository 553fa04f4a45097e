"""What a user may see, asked of the API server and believed for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Protocol

import structlog

from convoy_crds.meta import GROUP
from convoy_operator import errors
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.gateway import Object

log = structlog.get_logger(__name__)

MOST_ANSWERS = 2048
ANSWER_SECONDS = 5.0
"""Pages wait for answers, and have to say soon that there are none."""
RETRY_SECONDS = 15.0
"""After a question that nobody answered it is asked again."""
_JOBS = {"verb": "list", "group": GROUP, "resource": "trainingjobs"}
_NODES = {"verb": "list", "group": GROUP, "resource": "nodehealths"}
_LOGS = {"verb": "get", "group": "", "resource": "pods", "subresource": "log"}


class Reviewer(Protocol):
    """Who answers."""

    async def review_access(self, user: str, groups: tuple[str, ...], wanted: Mapping[str, str]) -> Object:
        """`status` of a SubjectAccessReview."""
        ...


class Access(Protocol):
    """What a session may see."""

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


class Everything:
    """For a dashboard that asks nobody who they are."""

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


class ReviewedAccess:
    """As SubjectAccessReviews say. While nobody answers, what was said before holds, and nothing else."""

    def __init__(
        self,
        reviewer: Reviewer,
        identity: Identity,
        seconds: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._reviewer = reviewer
        self._identity = identity
        self._seconds = seconds
        self._clock = clock
        self._answers: OrderedDict[tuple[tuple[str, str], ...], tuple[float, bool]] = OrderedDict()

    async def namespaces(self, present: Iterable[str]) -> frozenset[str]:
        """See Access."""
        if await self.everywhere():
            return frozenset(present)
        asked = list(present)
        answers = await asyncio.gather(*(self._may({**_JOBS, "namespace": one}) for one in asked))
        return frozenset(one for one, may in zip(asked, answers, strict=True) if may)

    async def everywhere(self) -> bool:
        """See Access."""
        return await self._may(_JOBS)

    async def nodes(self) -> bool:
        """See Access."""
        return await self._may(_NODES)

    async def logs(self, namespace: str) -> bool:
        """See Access."""
        return await self._may({**_LOGS, "namespace": namespace})

    async def _may(self, wanted: Mapping[str, str]) -> bool:
        key, now = tuple(sorted(wanted.items())), self._clock()
        at, before = self._answers.get(key, (float("-inf"), False))
        if now - at < self._seconds:
            return before
        try:
            asked = self._reviewer.review_access(self._identity.user, self._identity.groups, wanted)
            status = await asyncio.wait_for(asked, ANSWER_SECONDS)
            answer = status.get("allowed") is True and status.get("denied") is not True
        except (errors.ApiError, TimeoutError) as fault:
            log.warning("no answer about a right", user=self._identity.user, error=str(fault))
            answer = before
            now -= max(0.0, self._seconds - RETRY_SECONDS)
        self._answers[key] = (now, answer)
        self._answers.move_to_end(key)
        while len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)
        return answer
