"""The login page. It is plain HTML without scripts, so that no script can read a token."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from convoy_operator import errors
from convoy_operator.dashboard.auth.identity import address_of
from convoy_operator.dashboard.auth.login_limit import LoginLimit
from convoy_operator.dashboard.auth.refusal import STYLE
from convoy_operator.dashboard.auth.request_guard import SESSION, is_location
from convoy_operator.dashboard.auth.session_resolver import MAX_TOKEN
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.pages.frame import THEME_COOKIE, THEMES
from convoy_operator.dashboard.settings import AuthMode

log = structlog.get_logger(__name__)

_YEAR = 31_536_000
REFUSED = "The API server rejected this token. It is invalid or has expired."
LIMITED = "Too many login attempts. Wait a minute."
AWAY = "The API server does not answer, so login is not possible. Try again."
OVER = "Your session has ended. Log in again."
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Convoy</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="{scheme}"><link rel="stylesheet" href="{style}"></head>
<body class="login {body}"><main>
<h1>Convoy</h1>
<form method="post" action="/login" autocomplete="off">
<input type="hidden" name="back" value="{back}">
<p id="help">Log in with a token of this cluster. The dashboard keeps the token in memory until
the session ends.</p>
<p class="banner" role="alert"{hidden}>{message}</p>
<label for="token">Token</label>
<input id="token" name="token" type="password" required autofocus spellcheck="false" autocomplete="off"
 maxlength="{most}" aria-describedby="help">
<button type="submit">Log in</button>
<p class="quiet">For example: <code>kubectl create token ACCOUNT -n NAMESPACE</code>. You see what the
token's owner may list.</p>
</form></main></body></html>
"""


def _back(given: str | None) -> str:
    """Return the address to open after the login. An address of another host or scheme becomes `/`."""
    return given if given is not None and is_location(given) else "/"


def _page(request: Request, message: str = "", status: int = 200, back: str | None = None) -> Response:
    theme = request.cookies.get(THEME_COOKIE, "")
    page = _PAGE.format(
        style=STYLE,
        scheme=theme if theme in ("light", "dark") else "light dark",
        body=f"body--{theme}" if theme in ("light", "dark") else "body--auto",
        message=escape(message),
        back=escape(_back(back)),
        hidden="" if message else " hidden",
        most=MAX_TOKEN,
    )
    return HTMLResponse(page, status, headers={"Cache-Control": "no-store"})


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a submitted form. The result is empty if the form is too long."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > 3 * MAX_TOKEN + 1024:
            return {}
    return {name: found[0] for name, found in parse_qs(body.decode("latin-1")).items()}


def register(context: Context, app: FastAPI) -> None:
    """Register the login page and the endpoints of the forms in the page header."""
    resolver, limit, secure = context.session_resolver, LoginLimit(), context.settings.secure_cookie

    @app.get("/login")
    async def show_login(request: Request) -> Response:
        if resolver.mode is not AuthMode.TOKEN_REVIEW:
            return RedirectResponse("/", 303)
        params = request.query_params
        return _page(request, OVER if "over" in params else "", back=params.get("back"))

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        if resolver.mode is not AuthMode.TOKEN_REVIEW:
            return PlainTextResponse("this dashboard has no login\n", 404)
        form = await _form(request)
        back = form.get("back")
        peer = request.client.host if request.client else ""
        forwarded = ",".join(request.headers.getlist("x-forwarded-for"))
        address = address_of(peer, forwarded, context.settings.proxies)
        if not limit.acquire(address):
            context.metrics.logins.labels("limited").inc()
            return _page(request, LIMITED, 429, back)
        try:
            session = await resolver.log_in(form.get("token", ""))
        except errors.ApiError as fault:
            limit.refund_failure(address)
            context.metrics.logins.labels("failed").inc()
            log.warning("login failed: the token was not reviewed", error=str(fault))
            return _page(request, AWAY, 503, back)
        if session is None:
            context.metrics.logins.labels("refused").inc()
            log.info("login refused: invalid token", peer=address)
            return _page(request, REFUSED, 401, back)
        limit.refund_failure(address)
        context.metrics.logins.labels("accepted").inc()
        log.info("logged in", user=session.identity.user, peer=address)
        response = RedirectResponse(_back(back), 303)
        cookie = resolver.cookie(request.headers.get("host", ""))
        response.set_cookie(cookie, session.id, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    @app.post("/logout")
    async def log_out(request: Request) -> Response:
        resolver.sessions.end(request.scope[SESSION])
        response = RedirectResponse("/login", 303)
        cookie = resolver.cookie(request.headers.get("host", ""))
        response.delete_cookie(cookie, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    @app.post("/theme")
    async def set_theme(request: Request) -> Response:
        message = await _form(request)
        response = RedirectResponse(_back(message.get("back")), 303)
        if message.get("theme") in THEMES:
            response.set_cookie(
                THEME_COOKIE,
                message["theme"],
                max_age=_YEAR,
                httponly=True,
                samesite="strict",
                secure=secure,
                path="/",
            )
        return response
