"""Tests of security headers, the request guard, websockets and the feed, without a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from convoy_operator.dashboard.auth.access import FullAccess
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.auth.refusal import refusal
from convoy_operator.dashboard.auth.request_guard import SESSION, RequestGuard, is_location
from convoy_operator.dashboard.auth.session_resolver import SessionResolver
from convoy_operator.dashboard.auth.sessions import Sessions
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.headers import SecurityHeaders
from convoy_operator.dashboard.settings import DashboardSettings
from convoy_operator.dashboard.sockets import EVENTS, bind_events

HTML = b"<style>a</style><script>b</script><script type='module'>'&lt;script>'</script><stylesheet><scripted>"


def play(app: Any, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all messages that an ASGI application sends for this scope."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(
        app({"method": "GET", "headers": [], "path": "/", "query_string": b"", **scope}, receive, send)
    )
    return sent


def page(kind: bytes) -> Any:
    """Return an application that sends a response of this content type in two pieces."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", kind), (b"content-length", b"1"), (b"X-Frame-Options", b"ALLOWALL")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": HTML[:20], "more_body": True})
        await send({"type": "http.response.body", "body": HTML[20:]})

    return app


def test_only_tags_of_a_page_get_the_nonce_of_its_policy() -> None:
    one, two = (play(SecurityHeaders(page(b"text/html; charset=utf-8")), {"type": "http"}) for _ in range(2))
    headers = dict(one[0]["headers"])
    (nonce,) = set(re.findall(r"'nonce-([^']+)'", headers[b"content-security-policy"].decode()))
    body = b"".join(message.get("body", b"") for message in one[1:]).decode()
    assert body.count(f'nonce="{nonce}"') == 3
    assert "&lt;script>" in body and "<stylesheet>" in body and "<scripted>" in body
    assert int(headers[b"content-length"]) == len(body)
    assert nonce not in dict(two[0]["headers"])[b"content-security-policy"].decode()
    assert [value for key, value in one[0]["headers"] if key.lower() == b"x-frame-options"] == [b"DENY"]


def test_responses_that_are_not_html_are_unchanged() -> None:
    sent = play(SecurityHeaders(page(b"text/javascript")), {"type": "http"})
    assert b"".join(message.get("body", b"") for message in sent) == HTML
    assert b"content-security-policy" in dict(sent[0]["headers"])


async def inner(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the name of the session's user. This is the application behind the guard."""
    session = scope.get(SESSION)
    response = session.identity.user if session else "open"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": response.encode()})


HOST = (b"host", b"a")
ORIGIN = (b"origin", b"http://a")
EVIL = (b"origin", b"http://evil")


@pytest.mark.parametrize(
    ("scope", "cookie", "response"),
    [
        ({}, False, 303),
        ({"path": "/jobs/a/b"}, True, "ada"),
        ({"path": "/nodes/full"}, True, 503),
        ({"path": "/nodes/full"}, False, 303),
        ({"path": "/static/full"}, True, "open"),
        ({"path": "/login"}, False, "open"),
        ({"path": "/healthz"}, False, "ok\n"),
        ({"path": "/healthz", "method": "HEAD"}, False, 200),
        ({"path": "/healthz", "method": "POST", "headers": [HOST, ORIGIN]}, False, 404),
        ({"path": "/healthz/x"}, False, 404),
        ({"path": "/static/x.css"}, False, "open"),
        ({"path": "/docs"}, True, 404),
        ({"path": "/login.php"}, False, 404),
        ({"path": "/loginx"}, False, 404),
        ({"path": "/themex"}, True, 404),
        ({"path": "/static/"}, False, 404),
        ({"path": "/_nicegui/x"}, True, 404),
        ({"path": "/favicon.icons"}, True, 404),
        ({"path": "/jobs/a"}, True, 404),
        ({"path": "/jobs/a/b/c"}, True, 404),
        ({"path": "/_nicegui/3/static/x.js"}, False, 401),
        ({"path": "/login", "method": "POST", "headers": [HOST]}, False, 403),
        ({"path": "/login", "method": "POST", "headers": [HOST, EVIL]}, False, 403),
        ({"path": "/login", "method": "POST", "headers": [HOST, ORIGIN]}, False, "open"),
        ({"path": "/logout", "method": "POST", "headers": [HOST, ORIGIN]}, False, 401),
        ({"path": "/_nicegui_ws/socket.io/", "query_string": b"client_id=mine"}, True, "ada"),
        ({"path": "/_nicegui_ws/socket.io/", "query_string": b"client_id=gone"}, True, "ada"),
        ({"path": "/_nicegui_ws/socket.io/", "query_string": b"client_id=others"}, True, 403),
        ({"path": "/_nicegui_ws/socket.io/", "query_string": b"client_id=mine&client_id=others"}, True, 403),
        ({"path": "/_nicegui_ws/", "type": "websocket", "headers": [HOST, EVIL]}, True, 1008),
        ({"path": "/_nicegui_ws/", "type": "websocket", "headers": [HOST]}, True, 1008),
        ({"path": "/_nicegui_ws/", "type": "websocket", "headers": [HOST, ORIGIN]}, False, 1008),
        ({"path": "/_nicegui_ws/", "type": "websocket", "headers": [HOST, ORIGIN]}, True, 1008),
        (
            {
                "path": "/_nicegui_ws/",
                "type": "websocket",
                "headers": [HOST, ORIGIN],
                "query_string": b"client_id=mine",
            },
            True,
            "ada",
        ),
        ({"path": "/_nicegui_ws/socket.io/", "query_string": b"client_id="}, True, "ada"),
        ({"path": "/_nicegui_ws/socket.io/"}, True, 403),
        ({"headers": [(b"cookie", b"convoy-session=x"), (b"cookie", b"convoy-session=y")]}, True, 303),
    ],
)
def test_requests_that_the_guard_allows(scope: dict[str, Any], cookie: bool, response: str | int) -> None:
    session_resolver = SessionResolver(DashboardSettings(auth_mode="TokenReview"), None)  # type: ignore[arg-type]
    mine = session_resolver.sessions.start(Identity("ada"), FullAccess())
    others = session_resolver.sessions.start(Identity("eve"), FullAccess())
    owners = {"mine": mine, "others": others}
    headers = list(scope.pop("headers", []))
    headers += [(b"cookie", f"convoy-session={mine.id}".encode())] if cookie else []
    guard = RequestGuard(
        inner,
        session_resolver,
        owners.get,
        lambda session: session is mine and scope.get("path", "").endswith("/full"),
    )
    sent = play(guard, {"type": "http", "headers": headers, **scope})
    if sent[0]["type"] == "websocket.close":
        assert sent[0]["code"] == response
    elif isinstance(response, str):
        assert sent[1]["body"].decode() == response
    else:
        assert sent[0]["status"] == response


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("localhost", True),
        ("LOCALHOST:8090", True),
        ("127.0.0.1:8090", True),
        ("[::1]:8090", True),
        ("rebound.example.com:8090", False),
        ("localhost.example.com", False),
        ("[", False),
        ("", False),
    ],
)
def test_without_authentication_only_local_host_names_are_allowed(host: str, passes: bool) -> None:
    settings = DashboardSettings(auth_mode="None")
    session_resolver = SessionResolver(settings, None)  # type: ignore[arg-type]
    guard = RequestGuard(inner, session_resolver, lambda _: None, hosts=settings.allowed_hosts)
    sent = play(guard, {"type": "http", "headers": [(b"host", host.encode())]})
    assert sent[0]["status"] == (200 if passes else 403)


@pytest.mark.parametrize(
    ("path", "used"),
    [
        ("/", True),
        ("/jobs/a/b", True),
        ("/theme", True),
        ("/favicon.ico", False),
        ("/_nicegui/3/x.js", False),
    ],
)
def test_background_requests_of_a_page_do_not_extend_the_session(path: str, used: bool) -> None:
    session_resolver = SessionResolver(DashboardSettings(auth_mode="TokenReview"), None)  # type: ignore[arg-type]
    session = session_resolver.sessions.start(Identity("ada"), FullAccess())
    before = session.used = session.used - 100
    headers = [(b"cookie", f"convoy-session={session.id}".encode())]
    play(
        RequestGuard(inner, session_resolver, lambda _: None),
        {"type": "http", "path": path, "headers": headers},
    )
    assert (session.used > before) is used


@pytest.mark.parametrize(
    ("page", "socket", "over", "accepted"),
    [
        ("mine", "mine", False, True),
        ("gone", "mine", False, True),
        ("others", "mine", False, False),
        ("mine", "mine", True, False),
        ("mine", "", False, False),
    ],
)
def test_a_socket_can_send_events_only_for_pages_of_its_session(
    page: str, socket: str, over: bool, accepted: bool
) -> None:
    sessions = Sessions(60, 600)
    owners = {name: sessions.start(Identity(name), FullAccess()) for name in ("mine", "others")}
    owners["mine"].over = over
    received: list[str] = []

    async def slow(_: str, message: dict[str, Any]) -> bool:
        received.append(message["client_id"])
        return True

    def quick(_: str, message: dict[str, Any]) -> None:
        received.append(message["client_id"])

    handlers = {name: slow if name == "handshake" else quick for name in EVENTS}
    scope = {"asgi.scope": {SESSION: owners.get(socket)}}
    sio = SimpleNamespace(handlers={"/": handlers}, on=handlers.__setitem__, get_environ=lambda _: scope)
    bind_events(sio, owners.get)
    for name in EVENTS:
        asyncio.run(handlers[name]("sid", {"client_id": page}))  # type: ignore[arg-type]
    assert received == ([page] * len(EVENTS) if accepted else [])


@pytest.mark.parametrize(
    ("path", "login"),
    [
        ("/", b"/login"),
        ("/jobs/a/b", b"/login?back=%2Fjobs%2Fa%2Fb"),
        ("/nodes/x&y", b"/login?back=%2Fnodes%2Fx%26y"),
        ("/?jobs.words=a%20b", b"/login?back=%2F%3Fjobs.words%3Da%2520b"),
        ("/jobs/a/b?rank=\u00e4", b"/login?back=%2Fjobs%2Fa%2Fb"),
    ],
)
def test_the_login_redirects_to_the_requested_page(path: str, login: bytes) -> None:
    session_resolver = SessionResolver(DashboardSettings(auth_mode="TokenReview"), None)  # type: ignore[arg-type]
    path, _, query = path.partition("?")
    scope = {"type": "http", "path": path, "query_string": query.encode()}
    sent = play(RequestGuard(inner, session_resolver, lambda _: None), scope)
    assert dict(sent[0]["headers"])[b"location"] == login


@pytest.mark.parametrize(
    ("path", "ours"),
    [("/", True), ("/jobs/a/b", True), ("/nodes/n", True), ("", False), ("//evil", False), ("/\\evil", False),
     ("/logout", False), ("/jobs/a", False), ("/jobs//", False), ("/nodes/a/b", False),
     ("https://evil/jobs/", False), ("/?jobs.words=a%20b", True), ("/jobs/a/b?rank=4", True), ("?/", False),
     ("//evil?x", False), ("/?a\r\nb", False), ("/?\u00e4", False)],
)  # fmt: skip
def test_forms_redirect_only_to_pages_of_the_dashboard(path: str, ours: bool) -> None:
    assert is_location(path) is ours


def test_several_changes_are_one_notification_with_the_first_time(
    virtual: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def play() -> None:
        feed = Feed()
        with feed.subscribe() as subscription:
            assert await subscription.wait(1.0) is None
            feed.notify()
            feed.notify()
            assert await subscription.wait(1.0) is not None
            clock = asyncio.get_running_loop().time
            start = clock()
            assert await subscription.wait(1.0) is None
            assert clock() - start >= 1.0
            assert len(feed) == 1
        assert len(feed) == 0

    virtual(play())


@pytest.mark.parametrize(
    ("accepted", "kind"), [("text/html,*/*", "text/html"), ("*/*", "text/plain"), ("", "text/plain")]
)
def test_a_refusal_is_a_page_for_browsers(accepted: str, kind: str) -> None:
    response = refusal(404, "there is no <such> page", accepted)
    assert response.status_code == 404 and response.headers["content-type"].startswith(kind)
    assert ("There is no &lt;such&gt; page." in bytes(response.body).decode()) == (kind == "text/html")
