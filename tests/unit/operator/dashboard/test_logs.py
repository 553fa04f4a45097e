"""Tests of logs: the lines of one rank, the limits, and the permission to read logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client, core

from convoy_operator import errors
from convoy_operator.dashboard.core.logs import (
    FIRST_READ,
    MAX_LENGTH,
    MAX_LINES,
    MAX_READ,
    MAX_TEXT,
    READ_MORE,
    Tail,
)
from convoy_operator.dashboard.gateway import FOLLOW_SECONDS
from convoy_operator.dashboard.log_limit import LogLimit, LogLimitError
from convoy_operator.dashboard.pages import logs

Run = Callable[[Coroutine[Any, Any, None]], None]


def test_the_lines_of_one_rank_and_of_the_launcher_are_kept() -> None:
    tail = Tail(1)
    tail.add("launcher\n[3/0] of rank 0\n[3/1] of ra")
    tail.add("nk 1\r\n[3/10] of rank 10\n\x1b[31mred\n[3/1] last")
    assert tail.text == "launcher\n[3/1] of rank 1\n\N{REPLACEMENT CHARACTER}[31mred"
    tail.end()
    assert tail.text.endswith("\n[3/1] last")


def test_a_log_is_bounded_in_lines_and_in_their_length() -> None:
    tail = Tail()
    for number in range(2 * MAX_LINES):
        tail.add(f"{number}\n")
    tail.add("x" * 10 * MAX_LENGTH)
    tail.end()
    lines = tail.text.split("\n")
    assert len(lines) == MAX_LINES
    assert lines[0] == str(MAX_LINES + 1) and len(lines[-1]) == MAX_LENGTH + 1


def test_a_tail_of_long_lines_is_bounded_by_its_text() -> None:
    tail = Tail()
    tail.add("".join(f"{number:0{MAX_LENGTH}}\n" for number in range(MAX_LINES)))
    lines = tail.text.split("\n")
    assert len(lines) == MAX_TEXT // MAX_LENGTH
    assert int(lines[-1]) == MAX_LINES - 1


def test_a_long_line_received_in_parts_keeps_its_rank() -> None:
    tail = Tail(1)
    tail.add("[3/0] ")
    for _ in range(10):
        tail.add("x" * MAX_LENGTH)
    tail.add("\n[3/1] short\n")
    assert tail.text == "[3/1] short"


@pytest.mark.parametrize(
    ("count", "own", "others", "wanted"),
    [
        (FIRST_READ, 0, FIRST_READ - 1, None),
        (FIRST_READ, 0, FIRST_READ, FIRST_READ * READ_MORE),
        (FIRST_READ, 10, FIRST_READ - 10, FIRST_READ * READ_MORE),
        (FIRST_READ * READ_MORE, MAX_LINES, FIRST_READ * READ_MORE - MAX_LINES, None),
        (MAX_READ - 1, 1, MAX_READ, MAX_READ),
        (MAX_READ, 1, MAX_READ, None),
    ],
)
def test_more_lines_are_read_until_the_rank_has_enough(
    count: int, own: int, others: int, wanted: int | None
) -> None:
    tail = Tail(1)
    tail.add("[3/1] of it\n" * own + "[3/2] of another\n" * others)
    assert tail.lines_to_read(count) == wanted


@pytest.mark.parametrize(
    ("text", "count", "summary"),
    [
        ("", 500, "the log is empty"),
        ("[3/2] x\n", 500, "no lines of this rank in the 1 line of its pod"),
        ("[3/2] x\n" * 500, 500, "no lines of this rank in the last 500 lines of its pod"),
        ("[3/1] x\n[3/2] y\n", 500, "1 line, from the 2 lines of its pod"),
        ("[3/1] x\n[3/2] y\n", 2, "1 line, from the last 2 lines of its pod"),
    ],
)
def test_the_read_lines_are_summarized(text: str, count: int, summary: str) -> None:
    tail = Tail(1)
    tail.add(text)
    assert tail.summary(count) == summary


def test_logs_are_limited_per_reader_and_in_total() -> None:
    log_limit = LogLimit(limit=3, limit_each=2)
    with log_limit.acquire("ada"), log_limit.acquire("ada"):
        with pytest.raises(LogLimitError, match="already reading 2 logs"), log_limit.acquire("ada"):
            pass
        with (
            log_limit.acquire("eve"),
            pytest.raises(LogLimitError, match="already reading 3 logs"),
            log_limit.acquire("kim"),
        ):
            pass
        assert len(log_limit) == 2
    assert len(log_limit) == 0


class Element(SimpleNamespace):
    """A fake element that `set_text`, `set_attribute` and `show` can change."""

    def __init__(self) -> None:
        super().__init__(text="", props={})

    def set_text(self, text: str) -> None:
        self.text = text


class Reading:
    """The log section of one page, without a browser."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may = {"jobs": True, "logs": True}
        self.found = 0
        self.requests: list[Mapping[str, Any]] = []
        self.written = "[1/0] of 0\n[1/1] of 1\n"
        self.fault: Exception | None = None
        self.texts: list[Element] = []

        def text(*_: Any, **__: Any) -> Element:
            self.texts.append(Element())
            return self.texts[-1]

        self.closing: list[Callable[..., None]] = []
        client = type("C", (nullcontext,), {"on_delete": lambda _, handler: self.closing.append(handler)})()
        monkeypatch.setattr(logs, "ui", SimpleNamespace(context=SimpleNamespace(client=client)))
        monkeypatch.setattr(logs, "box", lambda *_, **__: nullcontext())
        monkeypatch.setattr(logs, "text", text)
        monkeypatch.setattr(logs, "button", text)
        monkeypatch.setattr(logs, "Field", lambda *_, **__: Element())
        create = SimpleNamespace(create=lambda work, name: asyncio.ensure_future(work))
        monkeypatch.setattr(logs, "background_tasks", create)
        access = SimpleNamespace(namespaces=self.namespaces, logs=self.logs)
        self.session: Any = SimpleNamespace(access=access, over=False, identity=SimpleNamespace(user="ada"))
        sessions = SimpleNamespace(use=lambda _: None)
        context: Any = SimpleNamespace(
            log_limit=LogLimit(), gateway=self, session_resolver=SimpleNamespace(sessions=sessions)
        )
        self.page = logs.Logs(context, self.session, "team", self.find)

    def close(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Close the page as NiceGUI does, which passes its client to a handler that accepts an argument."""

        def fail(fault: Exception) -> None:
            raise fault

        monkeypatch.setattr(core.app, "handle_exception", fail)
        for handler in self.closing:
            Client.safe_invoke(self.page._client, handler)

    async def namespaces(self, count: list[str]) -> frozenset[str]:
        return frozenset(count if self.may["jobs"] else ())

    async def logs(self, _: str) -> bool:
        return self.may["logs"]

    def find(self, _: int) -> tuple[str, str] | str:
        self.found += 1
        return "pod-0", "worker"

    async def log(self, *_: Any, **count: Any) -> AsyncIterator[str]:
        self.requests.append(count)
        yield self.written
        if self.fault is not None:
            raise self.fault
        while count["follow"]:
            await asyncio.sleep(1.0)
            yield "[1/0] more\n"

    @property
    def status(self) -> str:
        return self.page._status.text

    @property
    def lines(self) -> str:
        return self.page._lines.text


@pytest.mark.parametrize(
    ("may", "over", "status"),
    [
        ({"jobs": False}, False, "there is no such job, or you may not see it"),
        ({"logs": False}, False, "you may not read logs in namespace team"),
        ({}, True, "your session has ended"),
        ({}, False, "rank 0 in pod pod-0: 1 line, from the 2 lines of its pod"),
    ],
)
def test_permissions_are_checked_before_anything_is_revealed(
    monkeypatch: pytest.MonkeyPatch, virtual: Run, may: dict[str, bool], over: bool, status: str
) -> None:
    async def play() -> None:
        reading = Reading(monkeypatch)
        reading.may |= may
        reading.session.over = over
        reading.page._start(False)
        await asyncio.sleep(1.0)
        assert reading.status.startswith(status)
        assert (reading.found > 0) is (not may and not over), "who may not see it learns nothing of it"

    virtual(play())


def test_following_a_log_ends_when_its_permission_is_revoked(
    monkeypatch: pytest.MonkeyPatch, virtual: Run
) -> None:
    async def play() -> None:
        reading = Reading(monkeypatch)
        reading.page._start(True)
        await asyncio.sleep(10.0)
        assert reading.status == "following rank 0 in pod pod-0" and "more" in reading.lines
        reading.may["logs"] = False
        await asyncio.sleep(2.0)
        assert reading.status.startswith("you may not read logs") and reading.lines == ""

    virtual(play())


@pytest.mark.parametrize(
    ("seconds", "stop", "fault", "status"),
    [
        (5.0, True, None, "stopped"),
        (
            FOLLOW_SECONDS + 5,
            False,
            None,
            "rank 0 in pod pod-0: stopped after 30 min; press Follow to continue",
        ),
        (5.0, False, errors.Unavailable(0, "broken"), "rank 0: broken"),
    ],
)
def test_the_end_of_a_log_has_a_reason(
    monkeypatch: pytest.MonkeyPatch,
    virtual: Run,
    seconds: float,
    stop: bool,
    fault: Exception | None,
    status: str,
) -> None:
    async def play() -> None:
        reading = Reading(monkeypatch)
        reading.page._start(True)
        reading.fault = fault
        await asyncio.sleep(seconds)
        if stop:
            reading.page._stop_reading("stopped")
            await asyncio.sleep(0)
        assert reading.status == status
        assert len(reading.page._context.log_limit) == 0

    virtual(play())


def test_the_log_limit_is_reported(monkeypatch: pytest.MonkeyPatch, virtual: Run) -> None:
    async def play() -> None:
        reading = Reading(monkeypatch)
        reading.page._context.log_limit = LogLimit(limit=0)  # type: ignore[misc]
        reading.page._start(True)
        await asyncio.sleep(1.0)
        assert "already reading 0 logs" in reading.status and reading.requests == []

    virtual(play())


@pytest.mark.parametrize("follow", [True, False])
def test_a_page_that_is_closed_reads_no_more(
    monkeypatch: pytest.MonkeyPatch, virtual: Run, follow: bool
) -> None:
    async def play() -> None:
        reading = Reading(monkeypatch)
        reading.close(monkeypatch)
        reading.page._start(follow)
        await asyncio.sleep(1.0)
        assert len(reading.page._context.log_limit) == follow
        status = reading.status
        reading.close(monkeypatch)
        await asyncio.sleep(0.1)
        assert len(reading.page._context.log_limit) == 0 and reading.status == status

    virtual(play())
