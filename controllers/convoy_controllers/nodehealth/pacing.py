"""How much of what was predicted a job gained by leaving a node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.robust import MEDIAN_ERROR, spread
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_crds.nodehealth import Action, Outcome, PaceRecord

ENOUGH = 0.5
"""Share of the predicted gain from which an action was right."""
LEAST_SECONDS = 1e-4
"""Below which a gain is none, of whatever step."""
SIGMAS = 2.5
"""Standard errors that a share must be away from `ENOUGH` to be told."""
FEWEST_WINDOWS = 12
"""Of an incarnation, by which its pace is known."""
NAMED_WINDOWS = 48
"""By which a rank that is slow for long has been named: noise is known after 12, and slowness is lasting 16
after its alarm.
"""
_MOST_RANKS = 64
LEAST_GAIN = 0.02
"""Share of a step below which a gain drowns in noise: nothing is concluded from it."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that keep the others of their job waiting, for long."""

    ranks: frozenset[int]
    cause: str
    gain: float
    """Seconds by which a step would be shorter without that."""


@dataclass(frozen=True, slots=True)
class JobPace:
    """How fast a job is now."""

    uid: str
    incarnation: int
    seconds: float
    """Of a step, the median of the last windows."""
    error: float
    """Standard error of that."""
    windows: int
    """That this incarnation has made."""
    ranks: int
    nodes: frozenset[str]
    slow: tuple[Slow, ...] = ()
    """What holds it up now."""


def error(walls: Sequence[float]) -> float:
    """Standard error of the median of steps' durations, by their robust standard deviation."""
    return MEDIAN_ERROR * spread(np.asarray(walls, float)) / math.sqrt(len(walls))


def paces(facts: HardwareFacts, now: Mapping[str, JobPace]) -> list[PaceRecord]:
    """What is to be remembered of the jobs that hold something against a node when it is left."""
    found = []
    for one in facts.suspicions:
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


def as_before(swapped: PaceRecord, now: Slow) -> bool:
    """Whether ranks that were moved are slow again for the same cause, and about as much."""
    alike = ENOUGH * swapped.gain <= now.gain <= swapped.gain / ENOUGH
    return alike and now.cause == swapped.cause and bool(now.ranks & set(swapped.slow))


def recovered(action: Action | None, node: str, now: Mapping[str, JobPace]) -> float | None:
    """The share of the predicted gain that the jobs of an action have shown, of the best of them; None while
    it is not known. A job is not judged while it is on that node, or on others that it accused then, nor with
    another number of ranks, nor while noise could have made the difference, nor, unless it has gained enough,
    while something else holds it up, or it is too soon to know that nothing does: the same ranks, elsewhere.
    """
    shares = []
    for one, known in _since(action, node, now):
        share = (one.seconds - known.seconds) / one.gain
        clear = abs(share - ENOUGH) >= SIGMAS * math.hypot(one.error, known.error) / one.gain
        alone = not known.slow and known.windows >= NAMED_WINDOWS
        if clear and (share >= ENOUGH or alone):
            shares.append(share)
        elif any(as_before(one, slow) for slow in known.slow):
            shares.append(0.0)
    return max(shares, default=None)


def followed(action: Action | None, node: str, now: Mapping[str, JobPace]) -> frozenset[str]:
    """Jobs of an action whose ranks are as slow on the nodes that they are on now."""
    return frozenset(
        one.job
        for one, known in _since(action, node, now)
        if any(as_before(one, slow) for slow in known.slow)
    )


def later(swapped: PaceRecord, now: JobPace) -> bool:
    """Whether it is the same job, and not another of its name, in a later incarnation of the same shape."""
    return now.uid == swapped.uid and now.incarnation > swapped.incarnation and now.ranks == swapped.ranks


def _since(
    action: Action | None, node: str, now: Mapping[str, JobPace]
) -> Iterator[tuple[PaceRecord, JobPace]]:
    """The jobs of an action whose outcome is asked, as far as they run elsewhere and are known there."""
    if action is None or action.outcome is not Outcome.PENDING:
        return
    for one in action.paces:
        known = now.get(one.job)
        if one.gain <= 0 or known is None or not later(one, known):
            continue
        if known.windows >= FEWEST_WINDOWS and not known.nodes & {node, *one.others}:
            yield one, known
