"""The history of jobs' restarts, collected from `status.restarts.last` in bounded memory.

A job's status keeps only the last restart, and the API server keeps Events for an hour. So the history
begins with the last restart before the dashboard started.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime

from convoy_crds.trainingjob_status import LastRestart, TrainingJobStatus
from convoy_operator.dashboard.core.formatting import shortened

MAX_RESTARTS = 64
"""Maximum number of restarts per job. The newest are kept."""
JOBS = 500
"""Maximum number of jobs in the history. If there are more, the job that has gone longest without a restart
is dropped.
"""
MAX_MESSAGE = 1024
"""Maximum number of characters of a restart's message. Events have the same limit."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart of a job."""

    incarnation: int
    """The incarnation that began with the restart."""
    reason: str
    message: str
    """The message of `status.restarts.last`, shortened."""
    circumstances: str
    """A text that names the rank, node, step and scope of the restart, and says if it counts toward
    maxRestarts.
    """
    at: datetime


def latest(status: TrainingJobStatus) -> Restart | None:
    """Return the last restart that a job's status reports."""
    last = status.restarts.last
    if last is None:
        return None
    message = shortened(last.message, MAX_MESSAGE)
    return Restart(status.incarnation, last.reason, message, _circumstances(last), last.at)


def _circumstances(last: LastRestart) -> str:
    words = [
        f"scope {last.scope}",
        "counts toward maxRestarts" if last.counted else "does not count toward maxRestarts",
    ]
    if last.step is not None:
        words.insert(0, f"at step {last.step}")
    if last.rank is not None and last.node:
        words.insert(0, f"rank {last.rank} on {last.node}")
    return ", ".join(words)


class RestartHistory:
    """The recorded restarts of all jobs, by the job's uid."""

    def __init__(self, jobs: int = JOBS) -> None:
        self._most = jobs
        self._known: OrderedDict[str, deque[Restart]] = OrderedDict()

    def record(self, uid: str, status: TrainingJobStatus) -> None:
        """Record the last restart in a job's status, if the history does not contain it."""
        last, known = status.restarts.last, self._known.get(uid, ())
        if last is None or any(one.at == last.at for one in known):
            return
        if (found := latest(status)) is not None:
            self._known.setdefault(uid, deque(maxlen=MAX_RESTARTS)).append(found)
            self._known.move_to_end(uid)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def remove(self, uid: str) -> None:
        """Remove the restarts of a deleted job."""
        self._known.pop(uid, None)

    def get(self, uid: str) -> tuple[Restart, ...]:
        """Return a job's restarts, oldest first."""
        return tuple(self._known.get(uid, ()))

    def __len__(self) -> int:
        return len(self._known)
