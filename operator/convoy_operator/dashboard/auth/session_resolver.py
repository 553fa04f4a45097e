"""Finds or creates the session of a request, in each authentication mode."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from math import inf
from typing import Protocol
from urllib.parse import urlsplit

import structlog
from starlette.requests import cookie_parser

from convoy_operator import errors
from convoy_operator.dashboard.auth.access import AccessReviews, FullAccess, ReviewedAccess, Reviewer
from convoy_operator.dashboard.auth.identity import Identity, from_headers, from_review, within
from convoy_operator.dashboard.auth.sessions import Session, Sessions
from convoy_operator.dashboard.settings import AuthMode, DashboardSettings
from convoy_operator.gateway import Object
from convoy_operator.run_until_first_exit import run_until_first_exit

log = structlog.get_logger(__name__)

MAX_TOKEN = 16_384
CHECK_SECONDS = 5.0
"""Seconds between two checks for expired sessions and rejected tokens."""


class TokenReviewer(Reviewer, Protocol):
    """A source of TokenReviews and SubjectAccessReviews."""

    async def review_token(self, token: str) -> Object:
        """Return the `status` of a TokenReview for this token."""
        ...


class SessionResolver:
    """Finds the session of each request, and creates sessions."""

    def __init__(
        self, settings: DashboardSettings, reviewer: TokenReviewer, sessions: Sessions | None = None
    ) -> None:
        self._settings = settings
        self._reviewer = reviewer
        self.mode = AuthMode(settings.auth_mode)
        # Without authentication, all users share one session that never ends.
        ends = self.mode is not AuthMode.NONE
        idle, longest = (settings.idle_seconds, settings.session_seconds) if ends else (inf, inf)
        self.sessions = sessions or Sessions(idle, longest)
        self._proxies = settings.proxies
        self._reviewed: dict[str, float] = {}
        self._access_reviews = AccessReviews(reviewer, settings.recheck_seconds)

    def cookie(self, host: str) -> str:
        """Return the name of the session cookie for the value of a `Host` header.

        The prefix `__Host-` limits the cookie to TLS and to this host. Browsers share cookies between the
        ports of a host, so the name contains the port. Otherwise a login at one dashboard would end the
        session at another dashboard of the same host.
        """
        name = "__Host-convoy-session" if self._settings.secure_cookie else "convoy-session"
        port = host_of(host)[1]
        return f"{name}-{port}" if port else name

    def resolve(self, peer: str, header: Callable[[str], str]) -> Session | None:
        """Return the session of a request, or None if it has none. `peer` is the client's address. `header`
        returns the value of a header by its name.
        """
        if self.mode is AuthMode.TOKEN_REVIEW:
            return self.sessions.find(cookie_of(header("cookie"), self.cookie(header("host"))))
        if self.mode is AuthMode.NONE:
            anybody = Identity("anonymous")
            return self.sessions.find("-") or self.sessions.start(anybody, FullAccess(), key="-")
        if not within(peer, self._proxies):
            return None
        identity = from_headers(header("x-forwarded-user"), header("x-forwarded-groups"))
        if identity is None:
            return None
        text = "\0".join((identity.user, *identity.groups))
        key = hashlib.sha256(text.encode()).hexdigest()
        return self.sessions.find(key) or self.sessions.start(identity, self._access(identity), key=key)

    async def log_in(self, token: str) -> Session | None:
        """Create a session for the owner of the token. Return None if the token is rejected.

        Raises errors.ApiError if the API server does not review the token.
        """
        token = token.strip()
        if not token or len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable():
            return None
        identity = from_review(await self._reviewer.review_token(token))
        if identity is None:
            return None
        return self.sessions.start(identity, self._access(identity), token)

    def _access(self, identity: Identity) -> ReviewedAccess:
        return ReviewedAccess(self._access_reviews, identity)

    async def run(self) -> None:
        """End expired sessions and sessions with a rejected token, until cancelled."""
        await run_until_first_exit([self._expire(), self._recheck_all()])

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.sessions.expire()

    async def _recheck_all(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            known = {session.id: session for session in self.sessions.all() if session.token}
            self._reviewed = {key: self._reviewed.get(key, clock()) for key in known}
            for key, session in known.items():
                if clock() - self._reviewed[key] >= self._settings.recheck_seconds:
                    self._reviewed[key] = clock()
                    await self._recheck(session)

    async def _recheck(self, session: Session) -> None:
        if session.token is None:
            return
        try:
            identity = from_review(await self._reviewer.review_token(session.token))
        except errors.ApiError as fault:
            log.warning("a token was not reviewed again", user=session.identity.user, error=str(fault))
            return
        if identity != session.identity:
            log.info("session ended: its token is no longer valid", user=session.identity.user)
            self.sessions.end(session)


def cookie_of(header: str, name: str) -> str:
    """Return the value of a cookie, or an empty text if the header does not contain the cookie."""
    return cookie_parser(header).get(name, "")


def host_of(header: str) -> tuple[str, int | None]:
    """Return name and port of a `Host` header. The name is empty if the header is invalid."""
    try:
        parts = urlsplit(f"//{header}")
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None
