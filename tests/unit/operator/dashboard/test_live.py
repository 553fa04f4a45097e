"""Tests of the updates of open pages, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.metrics import DashboardMetrics
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.settings import AuthMode
from convoy_operator.dashboard.update_throttle import MIN_SECONDS, UpdateThrottle
from convoy_operator.metrics import Metrics

Run = Callable[[Coroutine[Any, Any, None]], None]


class Page(nullcontext):  # type: ignore[type-arg]
    """A fake of a page with its frame and its client."""

    id, is_deleted = "page", False

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mode: AuthMode = AuthMode.TOKEN_REVIEW) -> None:
        super().__init__()
        self.location = "/"
        self.session = SimpleNamespace(over=False, on_end=[])
        self.feed = Feed()
        self.metrics = DashboardMetrics(Metrics("test"))
        self.context: Any = SimpleNamespace(
            feed=self.feed,
            throttle=UpdateThrottle(),
            metrics=self.metrics,
            session_resolver=SimpleNamespace(mode=mode),
        )
        self.refreshed: list[float] = []
        self.failures: list[bool] = []
        self.fault: Exception | None = None
        self.visited: list[str] = []
        self.closing: list[Callable[[], None]] = []
        self.ready = asyncio.Event()
        self.access_known = asyncio.Event()
        self.access_known.set()
        self.refreshes = 0
        self.disconnected: list[float] = []
        ui = SimpleNamespace(
            context=SimpleNamespace(client=self), navigate=SimpleNamespace(to=self.visited.append)
        )
        monkeypatch.setattr(live, "ui", ui)
        create = SimpleNamespace(create=lambda work, name: asyncio.ensure_future(work))
        monkeypatch.setattr(live, "background_tasks", create)
        manager = SimpleNamespace(get_participants=lambda *_: [("socket", "eio")])
        sio = SimpleNamespace(manager=manager, disconnect=self.disconnect)
        monkeypatch.setattr(live, "core", SimpleNamespace(sio=sio))
        monkeypatch.setattr(live, "monotonic", lambda: asyncio.get_running_loop().time())

    async def connected(self, **_: float) -> None:
        await self.ready.wait()

    def on_delete(self, close: Callable[[], None]) -> None:
        self.closing.append(close)

    @property
    def frame(self) -> Page:
        return self

    def refresh(self) -> None:
        self.refreshes += 1

    async def check_access(self) -> None:
        await self.access_known.wait()

    def set_failed(self, at: datetime | None) -> None:
        self.failures.append(at is not None)

    def show(self) -> None:
        self.refreshed.append(asyncio.get_running_loop().time())
        if self.fault is not None:
            raise self.fault

    async def disconnect(self, socket: str) -> None:
        assert socket == "socket"
        self.disconnected.append(asyncio.get_running_loop().time())

    def delete(self) -> None:
        self.is_deleted = True

    async def open(self) -> None:
        """Build and connect the page, and wait for its first update."""
        await live.keep_updated(self.context, self)  # type: ignore[arg-type]
        self.ready.set()
        await asyncio.sleep(1.0)
        self.refreshed.clear()


def test_a_page_is_updated_immediately_and_then_at_its_interval(
    monkeypatch: pytest.MonkeyPatch, virtual: Run
) -> None:
    async def play() -> None:
        page = Page(monkeypatch)
        await page.open()
        start = asyncio.get_running_loop().time()
        for _ in range(50):
            page.feed.notify()
            await asyncio.sleep(MIN_SECONDS / 10)
        assert page.refreshed[0] - start < MIN_SECONDS / 10
        gaps = [after - before for before, after in zip(page.refreshed, page.refreshed[1:], strict=False)]
        assert len(page.refreshed) in (5, 6) and min(gaps) >= MIN_SECONDS * 0.999
        await asyncio.sleep(live.TICK / 2)
        assert len(page.refreshed) <= 7
        page.closing[0]()
        await asyncio.sleep(1.0)
        assert len(page.feed) == 0

    virtual(play())


def test_changes_during_the_load_of_a_page_are_not_missed(
    monkeypatch: pytest.MonkeyPatch, virtual: Run
) -> None:
    async def play() -> None:
        page = Page(monkeypatch)
        await live.keep_updated(page.context, page)  # type: ignore[arg-type]
        assert len(page.refreshed) == 1
        page.feed.notify()
        page.ready.set()
        await asyncio.sleep(MIN_SECONDS)
        assert len(page.refreshed) == 2
        page.closing[0]()

    virtual(play())


def test_a_failed_update_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch, virtual: Run) -> None:
    async def play() -> None:
        page = Page(monkeypatch)
        page.fault = KeyError("odd")
        await page.open()
        assert page.failures and all(page.failures)
        assert page.metrics.failures._value.get() == len(page.failures)
        page.fault = None
        await asyncio.sleep(live.FAILED_SECONDS + live.TICK + 1)
        assert page.failures[-1] is False and page.refreshed
        page.closing[0]()

    virtual(play())


@pytest.mark.parametrize(
    ("mode", "location", "leads"),
    [
        (AuthMode.TOKEN_REVIEW, "/jobs/team/gpt", "/login?over=1&back=%2Fjobs%2Fteam%2Fgpt"),
        (AuthMode.TOKEN_REVIEW, "/?a=b%20c&d=2", "/login?over=1&back=%2F%3Fa%3Db%2520c%26d%3D2"),
        (AuthMode.PROXY, "/jobs/team/gpt", "/jobs/team/gpt"),
        (AuthMode.PROXY, "/jobs/team/a b?rank=4", "/jobs/team/a%20b?rank=4"),
    ],
)
def test_an_ended_session_leads_its_page_to_the_login(
    monkeypatch: pytest.MonkeyPatch, virtual: Run, mode: AuthMode, location: str, leads: str
) -> None:
    async def play() -> None:
        page = Page(monkeypatch, mode)
        await page.open()
        page.location = location
        start = asyncio.get_running_loop().time()
        page.session.over = True
        for callback in page.session.on_end:
            callback()
        assert page.visited == [leads]
        if mode is AuthMode.TOKEN_REVIEW:
            assert parse_qs(urlsplit(leads).query)["back"] == [location], "the login leads back"
        page.feed.notify()
        await asyncio.sleep(MIN_SECONDS)
        assert page.refreshed == [], "nobody who is logged out is told of a change"
        assert page.disconnected == [] and not page.is_deleted, "its browser leaves by itself"
        await asyncio.sleep(live.LEAVE_SECONDS)
        assert page.is_deleted and page.disconnected == [pytest.approx(start + live.LEAVE_SECONDS)]
        page.closing[0]()
        assert page.session.on_end == []

    virtual(play())


def test_the_banner_is_updated_during_a_slow_review_that_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, virtual: Run
) -> None:
    async def play() -> None:
        page = Page(monkeypatch)
        await page.open()
        # Set this page's processor time to zero, so that only other tasks use the processor during the
        # review.
        monkeypatch.setattr(live, "thread_time", lambda: 0.0)
        page.access_known.clear()
        refreshes, cost = page.refreshes, page.context.throttle.interval(1)
        page.feed.notify()
        await asyncio.sleep(1.0)
        assert page.refreshes == refreshes + 1 and page.refreshed == []
        monkeypatch.setattr(live, "thread_time", lambda: 7.0)
        page.access_known.set()
        await asyncio.sleep(MIN_SECONDS)
        assert page.refreshed and page.context.throttle.interval(1) == cost
        page.closing[0]()

    virtual(play())
