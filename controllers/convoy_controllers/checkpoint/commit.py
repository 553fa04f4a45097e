"""The commit of a generation, as the agent of slot 0 decides it. Pure.

A generation (incarnation, step) is COMMITTED only when every slot of the plan holds a call that says it is
prepared, its record has then been written down, and no later incarnation was seen of before that.
Steps of one incarnation commit in rising order; what a later one overtakes, or a slot abandons, is STALE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from convoy_controllers.checkpoint.generation import Generation

DEADLINE_SECONDS = 60.0
"""From a generation's first call, and again from the moment its record is to be written."""
MAX_OPEN = 8
"""Generations of one job under way; the oldest makes room."""


class Verdict(Enum):
    """How the commit of a generation ended."""

    COMMITTED = "committed"
    STALE = "stale"
    """An agent of the plan has seen a later incarnation, or a later generation is already decided, or some
    slot has abandoned this one."""
    EXPIRED = "expired"
    """No answer within the deadline: nothing is decided, a rank may prepare it again."""


@dataclass(frozen=True, slots=True)
class Open:
    """A generation that gathers its slots."""

    slots: frozenset[int]
    since: float


@dataclass(frozen=True, slots=True)
class CommitState:
    """Of one job, at the agent of its slot 0. Times are seconds of one clock."""

    incarnation: int = 0
    slots: int = 0
    seen: int = 0
    """The latest incarnation anybody told this agent of."""
    open: Mapping[int, Open] = field(default_factory=dict)
    """By step."""
    writing: int | None = None
    """The step whose record is being written down."""
    writing_since: float = 0.0
    committed: int = -1
    """Newest committed step of this incarnation."""
    abandoned: frozenset[int] = frozenset()
    """Steps that some slot will never prepare; the newest `MAX_OPEN`."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The hub formed this incarnation with so many slots."""

    incarnation: int
    slots: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """A slot's agent calls and holds: all its ranks have prepared."""

    slot: int
    generation: Generation


@dataclass(frozen=True, slots=True)
class Withdraw:
    """That call ended before an answer."""

    slot: int
    generation: Generation


@dataclass(frozen=True, slots=True)
class Abandon:
    """A slot will never prepare it: a rank of its could not save."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Recorded:
    """Its record is written down."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The record could not be written: others must not wait for it."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class IncarnationSeen:
    """Somebody has seen of this incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Planned | Prepare | Withdraw | Abandon | Recorded | Unwritten | IncarnationSeen | Tick


@dataclass(frozen=True, slots=True)
class Result:
    """The next state, then what is to be done."""

    state: CommitState
    write: Generation | None = None
    """Write this generation's record down."""
    verdicts: tuple[tuple[Generation, Verdict], ...] = ()
    """Answers for every held call of these generations. EXPIRED: try again if you still can."""


def step(state: CommitState, event: Event, now: float) -> Result:
    """The rules; `now` in seconds never goes backwards."""
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
    # Once the record is being written the slot's part was prepared when it counted.
    if event.generation.incarnation != state.incarnation or not known or state.writing == number:
        return Result(state)
    left = known.slots - {event.slot}
    others = {key: value for key, value in state.open.items() if key != number}
    return Result(replace(state, open={**others, number: replace(known, slots=left)} if left else others))


def _abandon(state: CommitState, event: Abandon) -> Result:
    number = event.generation.step
    # What is being written every slot has prepared.
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
    """Begins the record of the oldest complete generation, one at a time."""
    if state.writing is None:
        whole = sorted(number for number, entry in state.open.items() if len(entry.slots) == state.slots)
        if whole:
            state = replace(state, writing=whole[0], writing_since=now)
            return Result(state, write=Generation(state.incarnation, whole[0]), verdicts=verdicts)
    return Result(state, verdicts=verdicts)


def _all(state: CommitState, verdict: Verdict) -> tuple[tuple[Generation, Verdict], ...]:
    return tuple((Generation(state.incarnation, number), verdict) for number in sorted(state.open))
