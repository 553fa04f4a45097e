from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents import metrics
from convoy_agents.guard.telemetry_buffer import MAX_WINDOWS, TelemetryBuffer
from convoy_agents.guard.windows import parse
from convoy_agents.pods.fields import MessageError
from convoy_agents.wire import hub_pb2

ONE = {"first": 5, "last": 8}


def frame(*windows: Any) -> dict[str, Any]:
    return {"type": "telemetry", "windows": list(windows)}


def test_a_window_is_read() -> None:
    spent = {"wall": 4.0, "compute": 2.0, "optimizer": 0.5, "data": 0.25, "wait": 1, "save": 0.125}
    (read,) = parse(frame({**ONE, **spent, "tokens": 9, "micro": [1.5, 0.5]}), rank=3)
    assert read == hub_pb2.StepWindow(rank=3, first=5, last=8, tokens=9, micro=[1.5, 0.5], **spent)


def test_collectives_are_read() -> None:
    fields = {"kind": "dp", "members": "0-28:4,31", "bytes": 10, "count": 2, "seconds": 0.5}
    (read,) = parse(frame({**ONE, "collectives": [fields, {"kind": "tp", "members": "7"}]}), rank=3)
    one, other = read.collectives
    assert one == hub_pb2.Collective(**fields)
    assert other == hub_pb2.Collective(kind="tp", members="7")


def test_a_position_is_read() -> None:
    (read,) = parse(frame({**ONE, "stage": 0, "replica": 3}), rank=3)
    assert read.HasField("position") and (read.position.stage, read.position.replica) == (0, 3)
    (first,) = parse(frame({**ONE, "stage": 0, "replica": 0}), rank=0)
    assert first.HasField("position"), "the first stage of the first replica is a position too"
    assert [parse(frame({**ONE, "exchanges": given}), 0)[0].exchanges for given in (True, False)] == [
        True,
        False,
    ]


def test_missing_fields_have_default_values() -> None:
    assert parse(frame(ONE), rank=0) == (hub_pb2.StepWindow(first=5, last=8),)
    assert parse(frame(), rank=0) == ()


@pytest.mark.parametrize(
    ("windows", "field"),
    [
        (None, "windows"),
        ([ONE] * 33, "windows"),
        ([7], "windows"),
        ([{"first": 0, "last": 8}], "windows"),
        ([{"first": 9, "last": 8}], "windows"),
        ([{"first": 1, "last": 4097}], "windows"),
        ([{"first": 1}], "last"),
        ([{"first": 1.0, "last": 2}], "first"),
        ([{**ONE, "wall": -1.0}], "wall"),
        ([{**ONE, "compute": float("nan")}], "compute"),
        ([{**ONE, "data": "long"}], "data"),
        ([{**ONE, "wait": 1e7}], "wait"),
        ([{**ONE, "tokens": -1}], "tokens"),
        ([{**ONE, "micro": 1.0}], "micro"),
        ([{**ONE, "micro": [0.1] * 65}], "micro"),
        ([{**ONE, "micro": [True]}], "micro"),
        ([{**ONE, "collectives": {}}], "collectives"),
        ([{**ONE, "collectives": [7]}], "collectives"),
        ([{**ONE, "collectives": [{"kind": "dp", "members": "0"}] * 9}], "collectives"),
        ([{**ONE, "collectives": [{"members": "0-3"}]}], "kind"),
        ([{**ONE, "collectives": [{"kind": "x" * 33, "members": "0-3"}]}], "kind"),
        ([{**ONE, "collectives": [{"kind": "\ud800", "members": "0-3"}]}], "kind"),
        ([{**ONE, "collectives": [{"kind": "dp"}]}], "members"),
        ([{**ONE, "collectives": [{"kind": "dp", "members": "0-"}]}], "members"),
        ([{**ONE, "collectives": [{"kind": "dp", "members": "0," * 200 + "1"}]}], "members"),
        ([{**ONE, "collectives": [{"kind": "dp", "members": "0", "count": -1}]}], "count"),
        ([{**ONE, "collectives": [{"kind": "dp", "members": "0", "seconds": -0.1}]}], "seconds"),
        ([{**ONE, "micro": [None]}], "micro"),
        ([{**ONE, "exchanges": "yes"}], "exchanges"),
        ([{**ONE, "stage": -1, "replica": 0}], "stage"),
        ([{**ONE, "stage": 1}], "replica"),
        ([{**ONE, "replica": 2**31, "stage": 0}], "replica"),
    ],
)
def test_a_bad_field_is_named(windows: Any, field: str) -> None:
    with pytest.raises(MessageError, match=rf"^{field}"):
        parse({"type": "telemetry", "windows": windows}, rank=0)


scalars = st.none() | st.booleans() | st.integers(-1, 10**20) | st.floats() | st.text(max_size=3)
fields = st.sampled_from(["first", "last", "wall", "compute", "tokens", "micro"])


@given(st.lists(st.dictionaries(fields, scalars | st.lists(scalars, max_size=3)), max_size=3))
def test_any_frame_gives_serializable_windows_or_an_error(windows: list[dict[str, Any]]) -> None:
    try:
        read = parse({"type": "telemetry", "windows": windows}, rank=1)
    except MessageError as error:
        assert len(str(error)) < 200
    else:
        assert len([one.SerializeToString() for one in read]) == len(windows)


def window(rank: int, last: int) -> hub_pb2.StepWindow:
    return hub_pb2.StepWindow(rank=rank, first=last, last=last)


def sent(buffer: TelemetryBuffer) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    message = buffer.pop_message()
    pods = message.pods if message else []
    return {pod.pod_uid: (pod.incarnation, [(one.rank, one.last) for one in pod.windows]) for pod in pods}


def test_buffered_windows_are_sent_once() -> None:
    buffer = TelemetryBuffer()
    buffer.add("a", 1, (window(1, 3), window(1, 4)))
    buffer.add("a", 1, (window(0, 3),))
    buffer.add("b", 2, (window(0, 9),))
    buffer.add("c", 1, (window(0, 9),))
    buffer.drop_pod("c")
    assert sent(buffer) == {"a": (1, [(0, 3), (1, 3), (1, 4)]), "b": (2, [(0, 9)])}
    assert buffer.pop_message() is None


def test_windows_beyond_the_message_limit_are_sent_in_the_next_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("convoy_agents.guard.telemetry_buffer.MESSAGE_BYTES", 10)
    buffer = TelemetryBuffer()
    for uid in "abc":
        buffer.add(uid, 1, (window(0, 3), window(1, 3)))
    assert [list(sent(buffer)) for _ in range(4)] == [["a"], ["b"], ["c"], []]


def test_a_later_incarnation_discards_earlier_windows() -> None:
    buffer = TelemetryBuffer()
    buffer.add("a", 1, (window(0, 3),))
    buffer.add("a", 2, (window(0, 2),))
    assert sent(buffer) == {"a": (2, [(0, 2)])}


def test_the_oldest_windows_are_dropped_while_the_hub_is_disconnected() -> None:
    buffer = TelemetryBuffer()
    dropped = metrics.TELEMETRY_DROPPED._value.get()
    for last in range(1, MAX_WINDOWS + 11):
        buffer.add("a", 1, (window(0, last), window(1, last)))
    (_, windows) = sent(buffer)["a"]
    assert [last for rank, last in windows if rank == 1] == list(range(11, MAX_WINDOWS + 11))
    assert len(windows) == 2 * MAX_WINDOWS
    assert metrics.TELEMETRY_DROPPED._value.get() - dropped == 20


def test_the_buffer_is_bounded_and_keeps_the_newest_window_of_each_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("convoy_agents.guard.telemetry_buffer.MAX_BYTES", 10 * window(1, 1).ByteSize())
    buffer = TelemetryBuffer()
    for last in range(1, 9):
        buffer.add("a", 1, (window(1, last),))
    for last in range(1, 9):
        buffer.add("b", 1, (window(1, last),))
    buffer.add("c", 1, (window(1, 1),))
    buffer.add("a", 1, (window(1, 9),))
    found = {uid: [last for _, last in windows] for uid, (_, windows) in sent(buffer).items()}
    assert found == {"a": [2, 3, 4, 5, 6, 7, 8, 9], "b": [7, 8], "c": []}
    # Sent, dropped and removed windows must not count as used bytes. If they did, the last windows would not
    # fit.
    for uid in "cd":
        buffer.add(uid, 1, (window(1, 5),) * 10)
        buffer.drop_pod(uid)
    buffer.add("e", 1, (window(1, 5),) * 10)
    buffer.add("e", 2, tuple(window(1, last) for last in range(1, 11)))
    assert sent(buffer) == {"e": (2, [(1, last) for last in range(1, 11)])}
