"""The commit protocol of generations, as the agent of slot 0 runs it. Pure.

A generation (incarnation, step) is committed in two stages. First, every slot of the incarnation votes that
it is prepared, and keeps the call with its vote open. Then this agent writes the generation's record. The
generation is COMMITTED as soon as the record is written, unless the agent has learned of a later
incarnation before.

The steps of one incarnation commit in ascending order. A generation is STALE if a later generation
overtakes it, or if a slot abandons it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from convoy_controllers.checkpoint.generation import Generation

DEADLINE_SECONDS = 60.0
"""Seconds from the first vote for a generation until the generation expires. The time starts again when the
agent starts to write the record.
"""
MAX_OPEN = 8
"""Maximum number of generations of one job that wait for votes at the same time. If there are more, the
oldest expires.
"""


class Verdict(Enum):
    """The outcome of an attempt to commit a generation."""

    COMMITTED = "committed"
    STALE = "stale"
    """The generation will never be committed, for one of three reasons. The agent has learned of a later
    incarnation; or a later step of the same incarnation is committed; or a slot has abandoned the
    generation.
    """
    EXPIRED = "expired"
    """The generation is dropped without a decision, for one of three reasons: its deadline has passed, too
    many newer generations are open, or its record could not be written. A rank may prepare the
    generation again.
    """


@dataclass(frozen=True, slots=True)
class Open:
    """A generation that waits for the votes of its slots."""

    slots: frozenset[int]
    since: float


@dataclass(frozen=True, slots=True)
class CommitState:
    """The commit state of one job, at the agent of its slot 0. All times are seconds of one monotonic
    clock.
    """

    incarnation: int = 0
    slots: int = 0
    seen: int = 0
    """The latest incarnation that this agent has learned of."""
    open: Mapping[int, Open] = field(default_factory=dict)
    """Generations that wait for votes, and the one whose record is being written, by step."""
    writing: int | None = None
    """The step of the generation whose record is being written; None if no record is."""
    writing_since: float = 0.0
    committed: int = -1
    """The newest committed step of `incarnation`; -1 before its first commit."""
    abandoned: frozenset[int] = frozenset()
    """Steps that some slot will never prepare; the newest `MAX_OPEN` of them."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Event: the hub has formed `incarnation` with `slots` slots."""

    incarnation: int
    slots: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Event: the agent of a slot votes that all its ranks have prepared the generation. Its call stays open
    until the verdict.
    """

    slot: int
    generation: Generation


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Event: the call that carried the vote of a slot ended before the verdict, so the vote no longer
    counts.
    """

    slot: int
    generation: Generation


@dataclass(frozen=True, slots=True)
class Abandon:
    """Event: a slot will never prepare the generation, because one of its ranks could not save."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Recorded:
    """Event: the record of the generation has been written."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Event: the record of the generation could not be written. The generation expires. The record of the
    next generation that all slots have prepared may be written.
    """

    generation: Generation


@dataclass(frozen=True, slots=True)
class IncarnationSeen:
    """Event: this agent has learned that `incarnation` exists."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed, so generations may have reached their deadline."""


Event = Planned | Prepare | Withdraw | Abandon | Recorded | Unwritten | IncarnationSeen | Tick


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one event: the next state, and the actions that the agent must take."""

    state: CommitState
    write: Generation | None = None
    """The generation whose record the agent must write now; None if there is none."""
    verdicts: tuple[tuple[Generation, Verdict], ...] = ()
    """Verdicts to send to every open call for these generations. After EXPIRED, a rank may prepare the
    generation again.
    """


def step(state: CommitState, event: Event, now: float) -> Result:
    """Return the state and the actions after one event. `now` is in seconds and never goes backwards."""
    match event:
        case Planned():
            return _planned(state, event)
        case IncarnationSeen():
            return _see_incarnation(state, event.incarnation)
        case Prepare():
            return _prepare(state, event, now)
        case Withdraw():
            return _withdraw(state, event)
        case Abandon():
            return _abandon(state, event)
        case Recorded():
            return _recorded(state, event, now)
        case Unwritten():
            return _unwritten(state, event, now)
        case Tick():
            return _tick(state, now)


def _planned(state: CommitState, event: Planned) -> Result:
    if event.incarnation <= state.incarnation:
        return Result(state)
    fresh = CommitState(event.incarnation, event.slots, max(event.incarnation, state.seen))
    return Result(fresh, verdicts=_all(state, Verdict.STALE))


def _see_incarnation(state: CommitState, incarnation: int) -> Result:
    if incarnation <= state.seen:
        return Result(state)
    if incarnation <= state.incarnation:
        return Result(replace(state, seen=incarnation))
    stopped = replace(state, seen=incarnation, open={}, writing=None)
    return Result(stopped, verdicts=_all(state, Verdict.STALE))


def _prepare(state: CommitState, event: Prepare, now: float) -> Result:
    generation = event.generation
    if generation.incarnation > state.incarnation:
        seen = _see_incarnation(state, generation.incarnation)
        return replace(seen, verdicts=(*seen.verdicts, (generation, Verdict.EXPIRED)))
    if generation.incarnation < state.incarnation or generation.incarnation < state.seen:
        return Result(state, verdicts=((generation, Verdict.STALE),))
    if generation.step <= state.committed:
        same = generation.step == state.committed
        return Result(state, verdicts=((generation, Verdict.COMMITTED if same else Verdict.STALE),))
    if generation.step in state.abandoned:
        return Result(state, verdicts=((generation, Verdict.STALE),))
    if not 0 <= event.slot < state.slots:
        return Result(state)
    before = state.open.get(generation.step, Open(frozenset(), now))
    grown = {**state.open, generation.step: replace(before, slots=before.slots | {event.slot})}
    evicted: tuple[tuple[Generation, Verdict], ...] = ()
    if len(grown) > MAX_OPEN:
        oldest = min(entry for entry in grown if entry != state.writing)
        del grown[oldest]
        evicted = ((Generation(state.incarnation, oldest), Verdict.EXPIRED),)
    return _advance(replace(state, open=grown), now, evicted)


def _withdraw(state: CommitState, event: Withdraw) -> Result:
    number = event.generation.step
    known = state.open.get(number)
    # While the record is being written, all votes are already counted, so a withdrawal changes nothing.
    if event.generation.incarnation != state.incarnation or not known or state.writing == number:
        return Result(state)
    left = known.slots - {event.slot}
    others = {key: value for key, value in state.open.items() if key != number}
    return Result(replace(state, open={**others, number: replace(known, slots=left)} if left else others))


def _abandon(state: CommitState, event: Abandon) -> Result:
    number = event.generation.step
    # If the record is being written, every slot has prepared the generation, so the generation cannot be
    # abandoned.
    if event.generation.incarnation != state.incarnation or number in (state.writing, state.committed):
        return Result(state)
    abandoned = frozenset(sorted({*state.abandoned, number})[-MAX_OPEN:])
    left = {key: value for key, value in state.open.items() if key != number}
    verdicts = ((event.generation, Verdict.STALE),) if number in state.open else ()
    return Result(replace(state, open=left, abandoned=abandoned), verdicts=verdicts)


def _recorded(state: CommitState, event: Recorded, now: float) -> Result:
    generation = event.generation
    if generation.incarnation != state.incarnation or generation.step != state.writing:
        return Result(state)
    verdicts = [(generation, Verdict.COMMITTED)]
    overtaken = sorted(entry for entry in state.open if entry < generation.step)
    verdicts += [(Generation(state.incarnation, entry), Verdict.STALE) for entry in overtaken]
    left = {key: value for key, value in state.open.items() if key > generation.step}
    return _advance(replace(state, open=left, writing=None, committed=generation.step), now, tuple(verdicts))


def _unwritten(state: CommitState, event: Unwritten, now: float) -> Result:
    generation = event.generation
    if generation.incarnation != state.incarnation or generation.step != state.writing:
        return Result(state)
    left = {key: value for key, value in state.open.items() if key != generation.step}
    return _advance(replace(state, open=left, writing=None), now, ((generation, Verdict.EXPIRED),))


def _tick(state: CommitState, now: float) -> Result:
    def late(number: int, entry: Open) -> bool:
        since = state.writing_since if number == state.writing else entry.since
        return now - since >= DEADLINE_SECONDS

    over = sorted(number for number, entry in state.open.items() if late(number, entry))
    if not over:
        return _advance(state, now, ())
    left = {key: value for key, value in state.open.items() if key not in over}
    writing = None if state.writing in over else state.writing
    expired = tuple((Generation(state.incarnation, number), Verdict.EXPIRED) for number in over)
    return _advance(replace(state, open=left, writing=writing), now, expired)


def _advance(state: CommitState, now: float, verdicts: tuple[tuple[Generation, Verdict], ...]) -> Result:
    """Start to write the record of the oldest open generation that all slots have prepared. Do nothing
    while another record is being written. The result contains `verdicts`.
    """
    if state.writing is None:
        whole = sorted(number for number, entry in state.open.items() if len(entry.slots) == state.slots)
        if whole:
            state = replace(state, writing=whole[0], writing_since=now)
            return Result(state, write=Generation(state.incarnation, whole[0]), verdicts=verdicts)
    return Result(state, verdicts=verdicts)


def _all(state: CommitState, verdict: Verdict) -> tuple[tuple[Generation, Verdict], ...]:
    return tuple((Generation(state.incarnation, number), verdict) for number in sorted(state.open))
