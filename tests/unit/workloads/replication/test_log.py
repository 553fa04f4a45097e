"""Tests of the operations that a replica knows, of their bytes, and of the clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_workloads.serving.replication import frames, message_parts, operation
from convoy_workloads.serving.replication.clock import COUNTER_BITS, LARGEST, HybridClock
from convoy_workloads.serving.replication.contacts import MAX_CONTACTS, Contacts
from convoy_workloads.serving.replication.log import MAX_EARLY, OperationLog
from convoy_workloads.serving.replication.messages import (
    Busy,
    Confirm,
    FrameError,
    Message,
    Pull,
    Push,
    Sender,
    StateBegin,
    StateChunk,
    StateEnd,
    StateStamps,
    StateWinners,
    Supply,
)
from convoy_workloads.serving.replication.operation import Operation, Stamp
from convoy_workloads.serving.replication.recovery import dump, load

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
ALL = 1 << 30


def op(
    origin: bytes, sequence: int, clock: int = 0, key: bytes = b"k", payload: bytes | None = b"v"
) -> Operation:
    return Operation(Stamp(clock or sequence, origin, sequence), key, payload)


@st.composite
def histories(draw: st.DrawFn) -> list[Operation]:
    """Operations of up to three origins, with growing clocks in each."""
    found = []
    for origin in (A, B, C):
        clock = 0
        for sequence in range(1, draw(st.integers(0, 6)) + 1):
            clock += draw(st.integers(1, 3))
            key = draw(st.sampled_from([b"k", b"l", b"m"]))
            found.append(op(origin, sequence, clock, key, draw(st.sampled_from([None, b"", b"v"]))))
    return found


def state(log: OperationLog) -> tuple[object, object]:
    return log.vector, log.stamps()


@settings(max_examples=cases(30), deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(history: list[Operation], source: random.Random) -> None:
    first, second = OperationLog(), OperationLog()
    first.merge(history)
    mixed = history + source.choices(history, k=5) if history else []
    source.shuffle(mixed)
    values: dict[bytes, bytes | None] = {}
    while mixed:
        some = [mixed.pop() for _ in range(min(len(mixed), source.randrange(1, 4)))]
        values |= {one.key: one.payload for one in second.merge(some)}
    assert state(first) == state(second) and not second.early
    best = {one.key: one for one in sorted(history, key=lambda one: one.stamp.rank)}
    assert second.stamps() == {key: one.stamp for key, one in best.items()}
    assert values == {key: one.payload for key, one in best.items()}
    assert second.merge(history) == []


@settings(max_examples=cases(30), deadline=None)
@given(histories(), st.integers(0, 6), st.integers(0, 6), st.integers(1, 800))
def test_a_replica_gets_what_it_lacks_as_operations_or_as_winners(
    history: list[Operation], of_a: int, of_b: int, most: int
) -> None:
    full, behind = OperationLog(most), OperationLog()
    full.merge(history)
    assert full.retained_bytes <= most
    behind.merge(
        [one for one in history if one.stamp.sequence <= {A: of_a, B: of_b}.get(one.stamp.origin, 9)]
    )
    while True:
        found = full.missing_for(behind.vector, 300)
        assert found.operations or not found.more
        if not found.operations:
            break
        behind.merge(found.operations)
    assert found.trimmed is not behind.covers(full.vector)
    by_rank = {one.stamp.rank: one for one in history}
    keys = full.lacking(behind.vector)
    behind.merge_winners([by_rank[stamp.rank] for key in keys if (stamp := full.stamp(key))])
    assert behind.adopt(full.vector) == []
    assert state(behind) == state(full)


def test_an_operation_waits_for_its_predecessors() -> None:
    log = OperationLog()
    assert log.merge([op(A, 3), op(A, 2)]) == [] and log.known(A) == 0 and log.early == 2
    assert [one.stamp.sequence for one in log.merge([op(A, 1)])] == [1, 2, 3]
    assert log.early == 0 and log.vector == {A: 3}


def test_waiting_operations_are_bounded_and_sent_again() -> None:
    log = OperationLog()
    log.merge(op(A, number) for number in range(2, MAX_EARLY + 50))
    assert log.early == MAX_EARLY and log.known(A) == 0
    log.merge(op(A, number) for number in range(1, MAX_EARLY + 50))
    assert log.known(A) == MAX_EARLY + 49 and log.early == 0


def test_the_size_of_waiting_operations_is_bounded() -> None:
    log = OperationLog(5000)
    log.merge(op(A, sequence, payload=bytes(1000)) for sequence in range(2, 20))
    assert log.early == 4
    log.merge([op(A, 1)])
    assert (log.early, log.known(A)) == (0, 5)
    log.merge(op(A, sequence, payload=bytes(1000)) for sequence in range(7, 20))
    assert log.early == 4
    log.adopt({A: 30})
    log.merge(op(B, sequence, payload=bytes(1000)) for sequence in range(2, 20))
    assert log.early == 4


def test_a_state_lets_waiting_operations_follow() -> None:
    log = OperationLog()
    log.merge([op(A, 2), op(A, 5, key=b"l")])
    won = log.adopt({A: 4}, {b"k": Stamp(9, B, 1)})
    assert [one.stamp.sequence for one in won] == [5] and log.known(A) == 5 and log.early == 0
    assert log.stamp(b"k") == Stamp(9, B, 1) and log.clock == 9
    assert log.missing_for({A: 4}, ALL).operations == [op(A, 5, key=b"l")]
    assert log.missing_for({A: 3}, ALL).trimmed


def test_operations_that_all_peers_have_are_dropped() -> None:
    log = OperationLog()
    log.merge([op(A, number) for number in range(1, 6)] + [op(B, 1)])
    log.trim({A: 3})
    assert log.retained == 3 and log.vector == {A: 5, B: 1}
    assert [one.stamp.sequence for one in log.after(A, 3, ALL).operations] == [4, 5]
    assert log.after(A, 2, ALL).trimmed and not log.after(C, 0, ALL).trimmed
    log.trim({A: 99, B: 99})
    assert log.retained == log.retained_bytes == 0 and log.vector == {A: 5, B: 1}


def test_retained_operations_are_bounded_whatever_their_number() -> None:
    log = OperationLog(10_000)
    for number in range(1, 1000):
        log.merge([op(A if number % 3 else B, number // 3 + 1 if not number % 3 else number - number // 3)])
        if number % 100 == 0:
            log.trim({A: number // 2})
    assert log.retained_bytes <= 10_000 and len(log._order) <= 2 * log.retained + MAX_EARLY


def test_knowledge_survives_as_bytes() -> None:
    log = OperationLog()
    log.merge(op(A, number, key=f"k{number}".encode()) for number in range(1, 5001))
    data = dump(log)
    found = load(data, [op(A, 5001, key=b"k1"), op(B, 1)])
    assert found.vector == {A: 5001, B: 1} and found.stamp(b"k1") == Stamp(5001, A, 5001)
    assert found.stamp(b"k7") == log.stamp(b"k7") and found.clock == 5001
    assert load(b"").vector == {}
    for damaged in (data[:-1], data[:-13], data[13:], data[:50] + b"x" + data[51:]):
        with pytest.raises(FrameError):
            load(damaged)


STAMPS = st.builds(
    Stamp, st.integers(0, LARGEST), st.binary(min_size=16, max_size=16), st.integers(1, 2**64 - 1)
)
KEYS = st.binary(min_size=1, max_size=20)
OPERATIONS = st.lists(st.builds(Operation, STAMPS, KEYS, st.none() | st.binary(max_size=50)), max_size=5)
SENDERS = st.builds(Sender, st.binary(min_size=16, max_size=16), st.booleans(), st.booleans())
VECTORS = st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1), max_size=4)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Push, SENDERS, OPERATIONS),
    st.builds(Confirm, SENDERS, VECTORS),
    st.builds(Pull, SENDERS, VECTORS, st.booleans()),
    st.builds(Supply, SENDERS, VECTORS, OPERATIONS, st.booleans()),
    st.builds(StateBegin, SENDERS, VECTORS, st.booleans()),
    st.builds(StateStamps, st.dictionaries(KEYS, STAMPS, max_size=4)),
    st.builds(StateChunk, st.binary(max_size=50)),
    st.builds(StateWinners, OPERATIONS),
    st.just(StateEnd()),
    st.just(Busy()),
)


@settings(max_examples=cases(40), deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=3), st.integers(1, 40))
def test_messages_are_read_as_they_were_written_in_pieces_of_any_size(
    found: list[Message], size: int
) -> None:
    data = b"".join(frames.encode(one) for one in found)
    decoder = frames.Decoder()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [one for piece in pieces for one in decoder.feed(piece)] == found and not decoder.pending


@settings(max_examples=cases(60), deadline=None)
@given(MESSAGES, st.data())
def test_a_damaged_frame_is_refused(message: Message, data: st.DataObject) -> None:
    frame = bytearray(frames.encode(message))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError):
        frames.decode(bytes(frame))


@settings(max_examples=cases(60), deadline=None)
@given(st.integers(0, 12), st.binary(max_size=120))
def test_a_body_of_any_bytes_is_a_message_or_an_error(kind: int, body: bytes) -> None:
    try:
        found = frames._message(kind, body)
    except FrameError:
        return
    assert frames.encode(found)[frames.HEAD_BYTES :] == body or isinstance(
        found, StateStamps | Confirm | Pull | Supply | StateBegin
    )


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (frames.Kind.CONFIRM, bytes(17) + b"\xff\xff\xff\xff"),
        (frames.Kind.PUSH, bytes(17) + b"\x00\x00\x00\x01" + bytes(38)),
        (frames.Kind.PUSH, bytes(16) + b"\x04" + bytes(4)),
        (
            frames.Kind.PUSH,
            bytes(17)
            + b"\x00\x00\x00\x01"
            + message_parts._OPERATION.pack(bytes(16), 1, LARGEST + 1, 1, 0)
            + b"k",
        ),
        (frames.Kind.PULL, bytes(17) + b"\x02" + bytes(4)),
        (frames.Kind.STATE_END, b"x"),
        (99, b""),
    ],
)
def test_wrong_counts_numbers_and_flags_are_refused(kind: int, body: bytes) -> None:
    with pytest.raises(FrameError):
        frames._message(kind, body)


def test_lengths_are_checked_before_memory_is_used() -> None:
    head = frames._HEAD.pack(frames.MAGIC, frames.Kind.PUSH, frames.MAX_FRAME + 1, 0)
    with pytest.raises(FrameError, match="head"):
        list(frames.Decoder().feed(head))
    with pytest.raises(FrameError, match="exceeds"):
        frames.encode(StateChunk(bytes(frames.MAX_FRAME + 1)))


@pytest.mark.parametrize(
    ("key", "payload", "words"),
    [
        (b"", b"", "0 bytes"),
        (b"k" * 1025, b"", "1025 bytes"),
        (b"k", bytes(operation.MAX_PAYLOAD + 1), "payload"),
    ],
)
def test_keys_and_payloads_have_limits(key: bytes, payload: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        operation.check(key, payload)
    operation.check(b"k", None)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.none() | st.integers(0, 2**40)), max_size=20))
def test_a_clock_grows_whatever_the_time_of_day_does(steps: list[tuple[int, int | None]]) -> None:
    now = [0]
    clock, before = HybridClock(lambda: now[0]), -1
    for moment, received in steps:
        now[0] = moment
        if received is not None:
            clock.observe(received)
            before = max(before, received)
        found = clock.next()
        assert found > before and found >= moment << COUNTER_BITS
        before = found


def test_a_confirmation_needs_the_right_number_of_processes_that_stay() -> None:
    known = Contacts(C)
    known.record(Sender(A), {A: 5}, 1.0)
    known.record(Sender(B), {A: 3}, 2.0)
    known.record(Sender(C), {A: 9}, 3.0)
    assert [known.confirmed(A, copies) for copies in (1, 2, 3)] == [5, 3, 0]
    assert known.recent(2.0) == 1 and known.covering({A: 4}) == 1
    assert known.least([A, B], {A: 9, B: 9}) == {A: 3, B: 0} and known.least([A, C], {A: 9}) == {A: 0}
    known.record(Sender(A), {A: 2}, 4.0)
    assert known.vector(A) == {A: 5}, "what a process has does not shrink"
    known.record(Sender(A, drains=True), {}, 5.0)
    assert known.confirmed(A, 1) == 3 and known.drains(A)
    known.remove(B)
    known.record(Sender(B), {A: 9}, 6.0)
    assert known.confirmed(A, 1) == 0 and known.recent(0) == 0
    known.restore(B)
    assert known.confirmed(A, 1) == 9


def test_contacts_are_bounded() -> None:
    known = Contacts(A)
    for number in range(MAX_CONTACTS + 9):
        known.record(Sender(number.to_bytes(16, "big")), {A: 1}, number)
    assert len(known._found) == MAX_CONTACTS and not known.vector(bytes(16))


def test_the_origin_with_the_oldest_missing_operation_is_sent_first() -> None:
    """Otherwise the operations of a replica that has ended would wait behind those of one that writes."""
    log = OperationLog()
    log.merge([op(b"b" * 16, number, 100 + number) for number in range(1, 6)])
    log.merge([op(b"a" * 16, 1, 7)])
    found = log.missing_for({}, 1)
    assert [one.stamp.origin[:1] for one in found.operations] == [b"a"] and found.more
