"""What must hold at every moment of every job's life, whatever goes wrong.

Judged from what the simulated cluster itself knows: not from what the operator believes, but from which
processes run, what was stored and when.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime

from convoy_controllers.commands import Assign, PickPort
from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.happenings import Commanded, Happening, RanksStarted, StatusStored
from convoy_controllers.simulate.workers import LIVE
from convoy_controllers.trainingjob.nodes import strict
from convoy_crds.goodput import totals
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL

LEDGER_SECONDS = 0.002
"""By which the ledger's sum may miss the job's age: it counts in milliseconds."""


class Broken(AssertionError):
    """A promise was not kept."""


_ECHO, _KNOWN = 3.0, 60.0
"""A restart so many seconds before and after a blow to a machine may be its echo."""


@dataclass(slots=True)
class _Life:
    """What is remembered of one job."""

    counted: list[float] = field(default_factory=list)
    """When restarts that count were decided, but for those that were forgiven."""
    runners: dict[tuple[int, str], str] = field(default_factory=dict)
    """By (incarnation, slot) the uid of the pod that ran it."""


class Promises:
    """Raises Broken at the moment a promise breaks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lives: defaultdict[str, _Life] = defaultdict(_Life)
        self._blows: list[float] = []
        """When something of a machine changed."""
        cluster.listeners.append(self.judge)
        cluster.machines.changed.append(lambda machine: self._blows.append(cluster.kernel.now))

    def judge(self, happening: Happening) -> None:
        """Looks at what has happened."""
        match happening:
            case StatusStored():
                self._stored(happening)
            case Commanded(TrainingJob() as job, Assign() | PickPort() as command):
                if not job.status.membership:
                    raise Broken(f"a command of incarnation {command.incarnation}, and none is formed")
                if command.incarnation > job.status.incarnation:
                    raise Broken(f"incarnation {command.incarnation} is named before it is stored")
            case RanksStarted():
                self._started(happening)
            case _:
                pass

    def _stored(self, happening: StatusStored) -> None:
        before, after = happening.before.status, happening.after.status
        if before.phase in TERMINAL and after.phase is not before.phase:
            raise Broken(f"the terminal phase {before.phase} was left for {after.phase}")
        if after.incarnation < before.incarnation:
            raise Broken(f"the incarnation went back from {before.incarnation} to {after.incarnation}")
        if after.restarts.total < before.restarts.total:
            raise Broken("restarts were forgotten")
        self._budget(happening)
        self._ledger(happening.before, happening.after, happening.decided)

    def _budget(self, happening: StatusStored) -> None:
        before, after = happening.before.status.restarts, happening.after.status.restarts
        recovery = happening.after.spec.recovery
        life = self._lives[happening.after.metadata.uid]
        if after.total > before.total + 1:
            raise Broken(f"{after.total - before.total} restarts at once")
        if after.counted < before.counted and life.counted and self._explained(life.counted[-1]):
            life.counted.pop()
        if after.total > before.total and after.last is not None and after.last.counted:
            life.counted.append(happening.decided)
        start = happening.decided - recovery.window_seconds
        inside = sum(at > start for at in life.counted)
        if inside > recovery.max_restarts:
            raise Broken(f"{inside} counted restarts within the window, allowed are {recovery.max_restarts}")

    def _explained(self, counted: float) -> bool:
        """Whether something that was done to a machine may have caused the restart that counted then."""
        return any(blow - _ECHO <= counted <= blow + _KNOWN for blow in self._blows)

    def _ledger(self, before: TrainingJob, after: TrainingJob, decided: float) -> None:
        """Every second has one cause until the job has ended; from then on none is added."""
        made, ledger = after.metadata.creation_timestamp, after.status.goodput
        if made is None:
            return
        booked = sum(totals(ledger, datetime.fromtimestamp(decided, UTC)).values())
        if before.status.phase in TERMINAL:
            age = sum(before.status.goodput.seconds.values())
        else:
            age = decided - made.timestamp()
        if abs(booked - age) > LEDGER_SECONDS:
            raise Broken(f"the ledger holds {booked:.3f} s of an age of {age:.3f} s: {ledger.seconds}")
        if min(ledger.seconds.values(), default=0.0) < 0:
            raise Broken(f"the ledger holds less than nothing: {ledger.seconds}")

    def _started(self, started: RanksStarted) -> None:
        life = self._lives[started.job_uid]
        first = life.runners.setdefault((started.incarnation, started.pod), started.uid)
        if first != started.uid:
            raise Broken(f"two pods ran {started.pod} in incarnation {started.incarnation}")
        stored = self._cluster.api.jobs.get(started.job)
        if stored is None or stored.job.metadata.uid != started.job_uid or not strict(stored.job):
            return
        for other in self._cluster.workers.by_uid.values():
            same = (other.job_uid, other.pod) == (started.job_uid, started.pod)
            if not same or other.uid == started.uid or not other.live:
                continue
            if any(rank.state in LIVE for rank in self._cluster.workers.slots[other.uid].ranks):
                raise Broken(f"two processes of {started.pod} live at once under Strict fencing")
