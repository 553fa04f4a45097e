"""Tests of the frame of all pages and of the login page, without a browser."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from nicegui import Client
from nicegui.page import page
from starlette.requests import Request

from convoy_operator import errors
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.auth.login_limit import ADDRESS_BURST
from convoy_operator.dashboard.auth.session_resolver import SessionResolver
from convoy_operator.dashboard.metrics import DashboardMetrics
from convoy_operator.dashboard.pages import login
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.settings import AuthMode, DashboardSettings
from convoy_operator.metrics import Metrics


def framed() -> tuple[Frame, Any, Any]:
    """Return a frame with its API monitor and its session."""
    api_monitor = SimpleNamespace(unavailable_since=None, recovering=[], unwatched={})
    context: Any = SimpleNamespace(
        api_monitor=api_monitor, loading=list, session_resolver=SimpleNamespace(mode=AuthMode.NONE)
    )
    session: Any = SimpleNamespace(
        identity=Identity("ada"), access=SimpleNamespace(undecided=False), over=False
    )
    scope = {"type": "http", "path": "/", "headers": [], "query_string": b""}
    with Client(page(""), request=Request(scope)):
        return Frame(context, session, "", "/"), api_monitor, session


def test_the_announced_text_contains_no_growing_age() -> None:
    frame, api_monitor, _ = framed()
    texts = []
    for seconds in (5, 65):
        api_monitor.unavailable_since = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=seconds)
        frame.refresh()
        texts.append((re.sub(r"since \S+ \S+", "", frame._alert.text), frame._age.text))
    assert texts[0][0] == texts[1][0] and texts[0][1] != texts[1][1]
    assert frame._alert.props["role"] == "alert" and "role" not in frame._age.props


def test_undecided_permissions_are_reported() -> None:
    frame, _, session = framed()
    assert frame._alert.text == ""
    session.access.undecided = True
    frame.refresh()
    assert "Some of your permissions are not known yet" in frame._alert.text


def test_a_form_leads_back_to_the_page_with_its_filters() -> None:
    frame, _, _ = framed()
    assert frame._back_field.props["value"] == frame.location == "/"
    frame.set_location("/?jobs.page=2")
    assert frame._back_field.props["value"] == frame.location == "/?jobs.page=2"


class RejectingReviewer:
    """A reviewer that rejects every token."""

    async def review_token(self, _: str) -> dict[str, Any]:
        return {"authenticated": False}

    async def review_access(self, *_: Any) -> dict[str, Any]:
        raise errors.Unavailable(0, "not asked for here")


@pytest.mark.parametrize(("proxies", "shared"), [("", True), ("10.0.0.0/8", False)])
def test_behind_a_trusted_proxy_failed_logins_are_counted_per_client(proxies: str, shared: bool) -> None:
    settings = DashboardSettings(proxy_cidrs=proxies)
    context: Any = SimpleNamespace(
        session_resolver=SessionResolver(settings, RejectingReviewer()),
        settings=settings,
        metrics=DashboardMetrics(Metrics("test")),
    )
    app = FastAPI()
    login.register(context, app)

    async def play() -> None:
        transport = httpx.ASGITransport(app, client=("10.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as browser:

            async def log_in(address: str) -> httpx.Response:
                form = {"token": "wrong", "back": "/jobs/team/gpt"}
                return await browser.post("/login", data=form, headers={"X-Forwarded-For": address})

            statuses = [(await log_in("9.9.9.9")).status_code for _ in range(ADDRESS_BURST)]
            assert statuses == [401] * ADDRESS_BURST
            limited = await log_in("9.9.9.9")
            assert limited.status_code == 429
            assert 'name="back" value="/jobs/team/gpt"' in limited.text
            assert (await log_in("8.8.8.8")).status_code == (429 if shared else 401)

    asyncio.run(play())
