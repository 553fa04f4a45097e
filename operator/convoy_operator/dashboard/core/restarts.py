"""Restarts of jobs, as `status.restarts.last` told them one after the other, kept in bounded memory.

The API server keeps the latest alone, and an Event of each for an hour, so these begin with the one that was
the latest when the dashboard began to watch.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime

from convoy_crds.trainingjob_status import LastRestart, TrainingJobStatus
from convoy_operator.dashboard.core.formatting import shortened

MOST = 64
"""Of one job, the newest."""
JOBS = 500
"""Whose restarts are kept; the one that was quiet longest makes room."""
MOST_MESSAGE = 1024
"""Characters of a message: as much as an Event has."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One of a job's; as LastRestart has it, but for what is said here."""

    incarnation: int
    """The one that followed."""
    reason: str
    message: str
    """Shortened."""
    circumstances: str
    """Who was at fault, where and at which step, and what it cost."""
    at: datetime


def latest(status: TrainingJobStatus) -> Restart | None:
    """The one that a status tells of."""
    last = status.restarts.last
    if last is None:
        return None
    message = shortened(last.message, MOST_MESSAGE)
    return Restart(status.incarnation, last.reason, message, _circumstances(last), last.at)


def _circumstances(last: LastRestart) -> str:
    words = [f"replaces: {last.scope}", "counted" if last.counted else "not counted"]
    if last.step is not None:
        words.insert(0, f"at step {last.step}")
    if last.rank is not None and last.node:
        words.insert(0, f"rank {last.rank} on {last.node}")
    return ", ".join(words)


class RestartHistory:
    """Those of all jobs, by uid."""

    def __init__(self, jobs: int = JOBS) -> None:
        self._most = jobs
        self._known: OrderedDict[str, deque[Restart]] = OrderedDict()

    def record(self, uid: str, status: TrainingJobStatus) -> None:
        """Takes what a job's status tells."""
        last, known = status.restarts.last, self._known.get(uid, ())
        if last is None or any(one.at == last.at for one in known):
            return
        if (found := latest(status)) is not None:
            self._known.setdefault(uid, deque(maxlen=MOST)).append(found)
            self._known.move_to_end(uid)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def remove(self, uid: str) -> None:
        """The job is gone."""
        self._known.pop(uid, None)

    def get(self, uid: str) -> tuple[Restart, ...]:
        """A job's, oldest first."""
        return tuple(self._known.get(uid, ()))

    def __len__(self) -> int:
        return len(self._known)
