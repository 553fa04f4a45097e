from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.cases import cases

from convoy_controllers.checkpoint.commit import (
    DEADLINE_SECONDS,
    MAX_OPEN,
    Abandon,
    CommitState,
    Event,
    IncarnationSeen,
    Planned,
    Prepare,
    Recorded,
    Result,
    Tick,
    Unwritten,
    Verdict,
    Withdraw,
    step,
)
from convoy_controllers.checkpoint.generation import Generation


def prepare(slot: int, number: int, incarnation: int = 1) -> Prepare:
    return Prepare(slot, Generation(incarnation, number))


def withdraw(slot: int, number: int, incarnation: int = 1) -> Withdraw:
    return Withdraw(slot, Generation(incarnation, number))


def abandon(number: int, incarnation: int = 1) -> Abandon:
    return Abandon(Generation(incarnation, number))


def recorded(number: int, incarnation: int = 1) -> Recorded:
    return Recorded(Generation(incarnation, number))


def run(*events: Event | tuple[float, Event], slots: int = 2) -> Result:
    """Return the result of the last event. An event is given alone, or as a pair (seconds, event)."""
    result, now = step(CommitState(), Planned(1, slots), 0.0), 0.0
    for entry in events:
        now, event = entry if isinstance(entry, tuple) else (now, entry)
        result = step(result.state, event, now)
    return result


WHOLE = (prepare(0, 10), prepare(1, 10))


def verdicts(result: Result) -> dict[tuple[int, int], Verdict]:
    return {tuple(generation): verdict for generation, verdict in result.verdicts}


@pytest.mark.parametrize(
    ("events", "write"),
    [
        ((prepare(0, 10),), None),
        ((prepare(0, 10), prepare(0, 10)), None),
        (WHOLE, (1, 10)),
        ((prepare(1, 10), prepare(0, 10)), (1, 10)),
        ((prepare(0, 10), prepare(1, 11)), None),
        ((prepare(0, 10), withdraw(0, 10), prepare(1, 10)), None),
        ((prepare(0, 10), withdraw(0, 10), prepare(1, 10), prepare(0, 10)), (1, 10)),
        ((*WHOLE, prepare(0, 11), prepare(1, 11)), None),
        ((*WHOLE, prepare(0, 11), prepare(1, 11), recorded(10)), (1, 11)),
        ((prepare(0, 10), IncarnationSeen(2), prepare(1, 10)), None),
        ((prepare(0, 10), (DEADLINE_SECONDS, Tick()), prepare(1, 10)), None),
        ((prepare(0, 10), (DEADLINE_SECONDS - 0.1, Tick()), prepare(1, 10)), (1, 10)),
        ((prepare(0, 10), prepare(2, 10)), None),
        ((abandon(10), *WHOLE), None),
        ((abandon(9), *WHOLE), (1, 10)),
        ((abandon(10, incarnation=2), *WHOLE), (1, 10)),
    ],
    ids=[
        "one slot", "one slot twice", "all", "in any order", "of different steps", "one gave up",
        "one came back", "one at a time", "the next when it is recorded", "a later incarnation",
        "too late", "just in time", "a slot that does not exist", "abandoned before", "another was abandoned",
        "another incarnation's was",
    ],
)  # fmt: skip
def test_record_is_requested_when_every_slot_has_prepared(
    events: tuple[Event, ...], write: tuple[int, int] | None
) -> None:
    assert run(*events).write == write


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((*WHOLE, recorded(10)), {(1, 10): Verdict.COMMITTED}),
        ((recorded(10),), {}),
        ((prepare(0, 10), recorded(10)), {}),
        ((*WHOLE, recorded(11)), {}),
        ((*WHOLE, recorded(10, incarnation=2)), {}),
        ((*WHOLE, IncarnationSeen(2)), {(1, 10): Verdict.STALE}),
        ((*WHOLE, IncarnationSeen(2), recorded(10)), {}),
        ((*WHOLE, Planned(2, 2)), {(1, 10): Verdict.STALE}),
        ((*WHOLE, Planned(2, 2), recorded(10)), {}),
        ((*WHOLE, Planned(1, 2)), {}),
        ((*WHOLE, IncarnationSeen(1)), {}),
        ((*WHOLE, recorded(10), prepare(0, 10)), {(1, 10): Verdict.COMMITTED}),
        ((*WHOLE, recorded(10), prepare(0, 9)), {(1, 9): Verdict.STALE}),
        ((prepare(0, 9), *WHOLE, recorded(10)), {(1, 10): Verdict.COMMITTED, (1, 9): Verdict.STALE}),
        ((Planned(2, 2), prepare(0, 10)), {(1, 10): Verdict.STALE}),
        ((prepare(0, 10), prepare(1, 5, incarnation=2)), {(1, 10): Verdict.STALE, (2, 5): Verdict.EXPIRED}),
        ((prepare(1, 5, incarnation=2), prepare(0, 10)), {(1, 10): Verdict.STALE}),
        ((prepare(0, 10), (DEADLINE_SECONDS, Tick())), {(1, 10): Verdict.EXPIRED}),
        ((*WHOLE, (DEADLINE_SECONDS, Tick())), {(1, 10): Verdict.EXPIRED}),
        ((*WHOLE, (DEADLINE_SECONDS, Tick()), recorded(10)), {}),
        ((*WHOLE, withdraw(1, 10), recorded(10)), {(1, 10): Verdict.COMMITTED}),
        ((prepare(0, 10), abandon(10)), {(1, 10): Verdict.STALE}),
        ((abandon(10),), {}),
        ((abandon(10), prepare(0, 10)), {(1, 10): Verdict.STALE}),
        ((*WHOLE, abandon(10)), {}),
        ((*WHOLE, abandon(10), recorded(10)), {(1, 10): Verdict.COMMITTED}),
        ((*WHOLE, recorded(10), abandon(10), prepare(0, 10)), {(1, 10): Verdict.COMMITTED}),
    ],
    ids=[
        "recorded", "recorded unasked", "recorded too early", "another step", "another incarnation",
        "a later incarnation was seen", "recorded after that", "a later plan", "recorded after that plan",
        "the same plan", "the same incarnation", "asked after the commit", "asked for an older step",
        "an older step is overtaken", "an older incarnation", "a newer one ends this one",
        "and goes on ending it", "slots are missing", "the record is missing",
        "the record comes too late", "a caller left while it was written", "abandoned", "abandoned unheld",
        "held although abandoned", "abandoned while it is written", "recorded although abandoned",
        "abandoned when it is committed",
    ],
)  # fmt: skip
def test_verdicts_on_generations(events: tuple[Event, ...], expected: dict[tuple[int, int], Verdict]) -> None:
    assert verdicts(run(*events)) == expected


def test_generation_without_a_record_does_not_delay_the_next() -> None:
    late = DEADLINE_SECONDS
    result = run(*WHOLE, (1.0, prepare(0, 11)), (1.0, prepare(1, 11)), (late, Tick()))
    assert result.write == (1, 11)
    assert verdicts(result) == {(1, 10): Verdict.EXPIRED}


def test_unwritable_record_does_not_delay_other_generations() -> None:
    failed = run(*WHOLE, prepare(0, 20), prepare(1, 20), Unwritten(Generation(1, 10)))
    assert verdicts(failed) == {(1, 10): Verdict.EXPIRED} and failed.write == Generation(1, 20)
    assert run(*WHOLE, Unwritten(Generation(1, 20))).verdicts == ()
    assert run(*WHOLE, Unwritten(Generation(2, 10))).verdicts == ()
    again = step(failed.state, prepare(0, 10), 0.0)
    assert again.verdicts == (), "it may be prepared again"


def test_open_generations_are_bounded_and_keep_the_one_in_writing() -> None:
    result = run(*WHOLE, *(prepare(0, number) for number in range(11, 11 + 3 * MAX_OPEN)))
    assert len(result.state.open) == MAX_OPEN
    assert 10 in result.state.open
    assert verdicts(step(result.state, recorded(10), 0.0))[(1, 10)] is Verdict.COMMITTED


def test_set_of_abandoned_generations_is_bounded() -> None:
    result = run(*(abandon(number) for number in range(3 * MAX_OPEN)))
    assert result.state.abandoned == frozenset(range(2 * MAX_OPEN, 3 * MAX_OPEN))


SLOTS = 3
slot_numbers, numbers, incarnations = st.integers(0, SLOTS), st.integers(0, 5), st.integers(0, 3)


class AnyCommit(RuleBasedStateMachine):
    """Applies votes, records and incarnations in any order, and checks every verdict. For this it lists, by
    generation, the slots that have voted and still wait for a verdict.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = CommitState()
        self.now = 0.0
        self.held: dict[Generation, set[int]] = {}
        self.being_written: set[Generation] = set()
        self.abandoned: set[Generation] = set()
        self.seen_incarnation = 0
        self.plan = 0
        self.newest = Generation(-1, -1)

    def apply(self, event: Event) -> None:
        result = step(self.state, event, self.now)
        assert step(self.state, event, self.now) == result
        self.state = result.state
        if result.write:
            # A record is written only if every slot has voted and still waits, and no later incarnation has
            # been seen.
            assert self.held[result.write] >= set(range(SLOTS))
            assert result.write.incarnation == self.plan == self.seen_incarnation
            assert result.write > self.newest
            assert result.write not in self.abandoned
            self.being_written.add(result.write)
        for generation, verdict in result.verdicts:
            if verdict is Verdict.COMMITTED and generation != self.newest:
                assert generation in self.being_written
                assert event == Recorded(generation)
                assert generation.incarnation == self.seen_incarnation
                assert generation > self.newest
                self.newest = generation
            if verdict is Verdict.COMMITTED:
                assert generation == self.newest
            self.held.pop(generation, None)
            self.being_written.discard(generation)

    @rule(incarnation=st.integers(1, 3))
    def planned(self, incarnation: int) -> None:
        self.seen_incarnation = max(self.seen_incarnation, incarnation)
        self.plan = max(self.plan, incarnation)
        self.apply(Planned(incarnation, SLOTS))

    @rule(incarnation=incarnations)
    def seen(self, incarnation: int) -> None:
        self.seen_incarnation = max(self.seen_incarnation, incarnation)
        self.apply(IncarnationSeen(incarnation))

    @rule(slot=slot_numbers, incarnation=incarnations, number=numbers)
    def prepares(self, slot: int, incarnation: int, number: int) -> None:
        generation = Generation(incarnation, number)
        self.seen_incarnation = max(self.seen_incarnation, incarnation)
        self.held.setdefault(generation, set()).add(slot)
        self.apply(Prepare(slot, generation))

    @precondition(lambda self: self.plan)
    @rule(number=numbers)
    def all_prepare(self, number: int) -> None:
        for slot in range(SLOTS):
            self.prepares(slot, self.plan, number)

    @rule(slot=slot_numbers, incarnation=incarnations, number=numbers)
    def withdraws(self, slot: int, incarnation: int, number: int) -> None:
        generation = Generation(incarnation, number)
        if generation not in self.being_written:
            self.held.get(generation, set()).discard(slot)
        self.apply(Withdraw(slot, generation))

    @rule(incarnation=incarnations, number=numbers)
    def abandons(self, incarnation: int, number: int) -> None:
        generation = Generation(incarnation, number)
        if generation not in self.being_written and incarnation == self.plan:
            self.abandoned.add(generation)
        self.apply(Abandon(generation))

    @rule(incarnation=incarnations, number=numbers)
    def records(self, incarnation: int, number: int) -> None:
        self.apply(Recorded(Generation(incarnation, number)))

    @precondition(lambda self: self.being_written)
    @rule()
    def records_what_was_asked(self) -> None:
        self.apply(Recorded(max(self.being_written)))

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def waits(self, seconds: float) -> None:
        self.now += seconds
        self.apply(Tick())

    @invariant()
    def nothing_grows_without_end(self) -> None:
        assert len(self.state.open) <= MAX_OPEN
        assert all(self.now - entry.since < 2 * DEADLINE_SECONDS for entry in self.state.open.values())


TestAnyCommit = pytest.mark.timeout(cases(180))(AnyCommit.TestCase)
TestAnyCommit.settings = settings(max_examples=cases(80), stateful_step_count=40)
