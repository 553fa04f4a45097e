"""Pods that the API server would not create: remembered until it is time to try them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from convoy_controllers.trainingjob.refusal import Refusal
from convoy_operator.limits import backoff

_KEPT = 50
"""Pods of one job whose refusal is kept: a wrong template is refused as often as it is tried."""


@dataclass(slots=True)
class _Refused:
    """The refusals of one job."""

    generation: int
    attempts: int = 0
    retry_at: float = 0.0
    why: dict[str, Refusal] = field(default_factory=dict)


class Refusals:
    """Of all jobs, by uid. Times are monotonic seconds. A new generation of the spec starts afresh."""

    def __init__(self, least: float, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._least = least
        self._most = most
        self._jobs: dict[str, _Refused] = {}

    def standing(self, uid: str, generation: int) -> Mapping[str, Refusal]:
        """By pod name, what was refused and is not to be tried yet."""
        refused = self._jobs.get(uid)
        if refused is None:
            return {}
        if refused.generation != generation:
            del self._jobs[uid]
            return {}
        return dict(refused.why) if self._clock() < refused.retry_at else {}

    def wait(self, uid: str) -> float | None:
        """Seconds until the job's pods may be tried again; None when nothing was refused."""
        refused = self._jobs.get(uid)
        return max(0.0, refused.retry_at - self._clock()) if refused else None

    def record(self, uid: str, generation: int, why: Mapping[str, Refusal]) -> None:
        """Takes the refusals of one round; each round in a row waits longer for the next."""
        refused = self._jobs.get(uid)
        if refused is None or refused.generation != generation:
            refused = self._jobs[uid] = _Refused(generation)
        refused.why = dict(list(why.items())[:_KEPT])
        refused.retry_at = self._clock() + backoff(refused.attempts, self._least, self._most)
        refused.attempts += 1

    def clear(self, uid: str) -> None:
        """All pods were created, or the job is gone."""
        self._jobs.pop(uid, None)
