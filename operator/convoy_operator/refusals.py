"""Remembers the children that the API server refused to create, until they may be retried."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convoy_controllers.workers.refusal import Refusal
from convoy_operator.limits import backoff

_KEPT = 50
"""Maximum number of refusals that are kept of one parent. One faulty template may cause a refusal for every
pod.
"""


@dataclass(slots=True)
class _Refused:
    """The refusals of one parent."""

    generation: int
    attempts: int = 0
    retry_at: float = 0.0
    why: dict[str, Refusal] = field(default_factory=dict)


class Refusals:
    """The refusals of all parents, by uid. Times are monotonic seconds. The refusals of a parent are
    dropped when its metadata generation changes.
    """

    def __init__(
        self, min_backoff: float, max_backoff: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._min_backoff = min_backoff
        self._max_backoff = max_backoff
        self._jobs: dict[str, _Refused] = {}

    def standing(self, uid: str, generation: int) -> Mapping[str, Refusal]:
        """Return the refusals that may not be retried yet, by child name."""
        refused = self._jobs.get(uid)
        if refused is None:
            return {}
        if refused.generation != generation:
            del self._jobs[uid]
            return {}
        return dict(refused.why) if self._clock() < refused.retry_at else {}

    def wait(self, uid: str) -> float | None:
        """Return the seconds until a parent's refused children may be retried; None if no child was
        refused.
        """
        refused = self._jobs.get(uid)
        return max(0.0, refused.retry_at - self._clock()) if refused else None

    def record(self, uid: str, generation: int, why: Mapping[str, Refusal]) -> None:
        """Record the refusals of one attempt. The back-off grows with each refused attempt."""
        refused = self._jobs.get(uid)
        if refused is None or refused.generation != generation:
            refused = self._jobs[uid] = _Refused(generation)
        refused.why = dict(list(why.items())[:_KEPT])
        refused.retry_at = self._clock() + backoff(refused.attempts, self._min_backoff, self._max_backoff)
        refused.attempts += 1

    def clear(self, uid: str) -> None:
        """Drop the refusals of a parent. This is done when all its children were created, or when the
        parent was deleted.
        """
        self._jobs.pop(uid, None)
