"""Gain of a job after a swap, as a share of the predicted gain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.robust import MEDIAN_ERROR, spread
from convoy_controllers.guard.suspicions import CAUSES
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_crds.nodehealth import Action, Outcome, PaceRecord

ENOUGH = 0.5
"""Minimum share of the predicted gain for an action to be Right."""
LEAST_SECONDS = 1e-4
"""Minimum gain in seconds per step. A smaller gain is ignored, even if it is a large share of a short step.
"""
SIGMAS = 2.5
"""Minimum number of standard errors between a share and `ENOUGH` for the share to be significant."""
FEWEST_WINDOWS = 12
"""Minimum number of windows of an incarnation before its speed is known."""
NAMED_WINDOWS = 48
"""Number of windows within which the detector names a persistently slow rank. The detector needs 12 windows
to estimate the noise, and 16 windows after the alarm.
"""
_MOST_RANKS = 64
LEAST_GAIN = 0.02
"""Minimum gain as a share of a step. A smaller gain cannot be distinguished from noise."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that persistently delay the other ranks of their job."""

    ranks: frozenset[int]
    cause: str
    gain: float
    """Seconds that each step would save if these ranks were not slow."""


@dataclass(frozen=True, slots=True)
class JobPace:
    """Current speed of a job, and the ranks that delay it."""

    uid: str
    incarnation: int
    seconds: float
    """Median duration of a step in the last windows, in seconds."""
    error: float
    """Standard error of `seconds`."""
    windows: int
    """Number of telemetry windows that the job's current incarnation has had so far."""
    ranks: int
    nodes: frozenset[str]
    slow: tuple[Slow, ...] = ()
    """Ranks that delay the job now."""


def error(walls: Sequence[float]) -> float:
    """Return the standard error of the median of step durations, from their robust standard deviation."""
    return MEDIAN_ERROR * spread(np.asarray(walls, float)) / math.sqrt(len(walls))


def paces(facts: HardwareFacts, now: Mapping[str, JobPace]) -> list[PaceRecord]:
    """Return the speeds of the jobs that accuse or suspect a node, as they are stored with a swap."""
    found = []
    for one in (*facts.suspicions, *(hint for hint in facts.noticed if hint.cause in CAUSES)):
        known = now.get(one.job)
        if known is not None and one.gain >= max(LEAST_GAIN * known.seconds, LEAST_SECONDS):
            found.append(
                PaceRecord(
                    job=one.job,
                    uid=known.uid,
                    incarnation=known.incarnation,
                    ranks=known.ranks,
                    seconds=round(known.seconds, 6),
                    error=round(known.error, 6),
                    gain=round(one.gain, 6),
                    others=sorted(set(one.beside))[:16],
                    cause=one.cause,
                    slow=sorted(one.ranks)[:_MOST_RANKS],
                )
            )
    return found


def is_slow_again(swapped: PaceRecord, now: Slow) -> bool:
    """Return True if the swapped ranks are slow again, for the same cause and by a similar amount."""
    alike = ENOUGH * swapped.gain <= now.gain <= swapped.gain / ENOUGH
    return alike and now.cause == swapped.cause and bool(now.ranks & set(swapped.slow))


def recovered(action: Action | None, node: str, now: Mapping[str, JobPace]) -> float | None:
    """Return the share of the predicted gain that a job has reached since an action swapped it; None while
    no share is known. If several jobs were swapped, return the largest share.

    A job counts only if it runs with as many ranks as before, and on none of the nodes that it accused. Its
    share must differ significantly from ENOUGH. A share below ENOUGH counts only if no rank delays the job
    any more. This is known only after NAMED_WINDOWS windows. If the same ranks are slow on other nodes, the
    share is 0.
    """
    shares = []
    for one, known in _since(action, node, now):
        share = (one.seconds - known.seconds) / one.gain
        clear = abs(share - ENOUGH) >= SIGMAS * math.hypot(one.error, known.error) / one.gain
        alone = not known.slow and known.windows >= NAMED_WINDOWS
        if clear and (share >= ENOUGH or alone):
            shares.append(share)
        elif any(is_slow_again(one, slow) for slow in known.slow):
            shares.append(0.0)
    return max(shares, default=None)


def followed(action: Action | None, node: str, now: Mapping[str, JobPace]) -> frozenset[str]:
    """Return the jobs of an action whose ranks are equally slow on their new nodes."""
    return frozenset(
        one.job
        for one, known in _since(action, node, now)
        if any(is_slow_again(one, slow) for slow in known.slow)
    )


def is_later_incarnation(swapped: PaceRecord, now: JobPace) -> bool:
    """Return True if `now` is the same job (same uid) in a later incarnation with as many ranks."""
    return now.uid == swapped.uid and now.incarnation > swapped.incarnation and now.ranks == swapped.ranks


def _since(
    action: Action | None, node: str, now: Mapping[str, JobPace]
) -> Iterator[tuple[PaceRecord, JobPace]]:
    """Yield the jobs that an action with a pending outcome swapped, if they run on other nodes at a known
    speed. Each job comes with its speed before the swap and its speed now.
    """
    if action is None or action.outcome is not Outcome.PENDING:
        return
    for one in action.paces:
        known = now.get(one.job)
        if one.gain <= 0 or known is None or not is_later_incarnation(one, known):
            continue
        if known.windows >= FEWEST_WINDOWS and not known.nodes & {node, *one.others}:
            yield one, known
