"""Names a replica that is slow against its peers at like load.

The detector of slow ranks judges the compute time per token of each replica, one window after another. A
replica counts in a window only if its load is like that of the others, because a larger batch needs less time
per token. Replicas of one role and one revision are peers. Nothing acts on the finding.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convoy_controllers.guard.channel_state import Rules
from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.findings import Cause, Finding
from convoy_controllers.guard.state import State, initial_state
from convoy_controllers.guard.telemetry import Layout, Window, tabulate
from convoy_controllers.servingjob.traffic import SlowReplica
from convoy_crds.trainingjob_straggler import Proof

WINDOW_SECONDS = 10.0
"""Minimum seconds of one window."""
FEWEST_TOKENS = 100
"""Number of tokens below which a replica does not count in a window."""
LIKE = 1.5
"""Largest ratio between the tokens of a replica and the median of all replicas at which their loads are like.
"""
_RULES = Rules(delta=0.1)
"""Limits of the detector. Requests differ more than the steps of a training, so more slowness is tolerated.
"""
_TOKENS = 1000.0


@dataclass(frozen=True, slots=True)
class Work:
    """The totals of one replica: the seconds of its compute loop, and its generated tokens."""

    incarnation: int
    seconds: float
    tokens: int

    def since(self, before: Work) -> Work | None:
        """Return the work after `before`; None if the replica has restarted."""
        seconds, tokens = self.seconds - before.seconds, self.tokens - before.tokens
        if self.incarnation != before.incarnation or seconds < 0 or tokens < 0:
            return None
        return Work(self.incarnation, seconds, tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Detector:
    """The detector of one set of peers after some windows."""

    pods: tuple[str, ...]
    """Uids of the peers' pods in slot 0."""
    state: State
    windows: int = 0
    totals: Mapping[str, Work] | None = None
    """The totals at the end of the last window; None before the first."""
    at: float = 0.0
    """Time of the end of the last window, in seconds of a monotonic clock."""
    slow: tuple[SlowReplica, ...] = ()
    """The slow replicas of the last window."""

    @classmethod
    def of(cls, pods: Sequence[str]) -> Detector:
        """Return the detector of a set of peers before the first window."""
        names = tuple(sorted(pods))
        layout = Layout.of([0] * len(names), range(len(names)))
        return cls(names, initial_state(layout, _RULES))

    def due(self, now: float) -> bool:
        """Return True if the window may end at `now`."""
        return self.totals is None or now - self.at >= WINDOW_SECONDS

    def advanced(self, totals: Mapping[str, Work], now: float) -> Detector:
        """Return the detector after new totals of its peers. Before the end of a window it is unchanged."""
        if self.totals is None:
            return replace(self, totals=dict(totals), at=now)
        if not self.due(now):
            return self
        known = {
            pod: one
            for pod in self.pods
            if pod in totals and pod in self.totals and (one := totals[pod].since(self.totals[pod]))
        }
        ended = replace(self, totals=dict(totals), at=now)
        alike = at_like_load(known)
        if len(alike) < 2:
            return ended
        number = self.windows + 1
        windows = [_window(self.pods.index(pod), number, one) for pod, one in alike.items()]
        state, report = advance(self.state, tabulate(windows, len(self.pods)))
        slow = tuple(one for finding in report.findings for one in self._blamed(finding))
        return replace(ended, state=state, windows=number, slow=slow)

    def _blamed(self, finding: Finding) -> list[SlowReplica]:
        if finding.cause is not Cause.COMPUTE or not finding.persistent:
            return []
        proven = finding.proof is Proof.PEERS
        return [SlowReplica(self.pods[rank], finding.slowdown, proven) for rank in finding.ranks]


def at_like_load(work: Mapping[str, Work]) -> dict[str, Work]:
    """Return the work of the replicas whose load is like the median of all that have enough tokens."""
    enough = {pod: one for pod, one in work.items() if one.tokens >= FEWEST_TOKENS and one.seconds > 0}
    if not enough:
        return {}
    middle = statistics.median(one.tokens for one in enough.values())
    return {pod: one for pod, one in enough.items() if middle / LIKE <= one.tokens <= middle * LIKE}


def _window(rank: int, number: int, work: Work) -> Window:
    seconds = work.seconds / work.tokens * _TOKENS
    return Window(rank, number, number, wall=seconds, compute=seconds)
