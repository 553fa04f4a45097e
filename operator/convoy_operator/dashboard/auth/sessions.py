"""Who is logged in: in memory alone, so that a restart ends all sessions."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic

from convoy_operator.dashboard.auth.access import Access
from convoy_operator.dashboard.auth.identity import Identity

MOST = 1000
"""Sessions at a time; the one that was idle longest makes room."""


@dataclass(eq=False, slots=True)
class Session:
    """One login."""

    id: str = field(repr=False)
    identity: Identity
    access: Access
    token: str | None = field(repr=False)
    """What was logged in with, to have it reviewed again; None behind a proxy."""
    made: float
    used: float
    over: bool = False
    on_end: list[Callable[[], None]] = field(default_factory=list, repr=False)
    """Told when it is over."""


class Sessions:
    """All of them."""

    def __init__(self, idle: float, longest: float, clock: Callable[[], float] = monotonic) -> None:
        self._idle = idle
        self._longest = longest
        self._clock = clock
        self._known: dict[str, Session] = {}

    def begin(
        self, identity: Identity, access: Access, token: str | None = None, key: str | None = None
    ) -> Session:
        """A session of that user, under a random id or the given one."""
        if len(self._known) >= MOST:
            self.end(min(self._known.values(), key=lambda one: one.used))
        now = self._clock()
        session = Session(key or secrets.token_urlsafe(32), identity, access, token, now, now)
        self._known[session.id] = session
        return session

    def find(self, key: str) -> Session | None:
        """The session of that id, unless it is over."""
        session = self._known.get(key)
        if session is not None and self._expired(session):
            self.end(session)
            return None
        return session

    def use(self, session: Session) -> None:
        """Its user has asked for something."""
        session.used = self._clock()

    def end(self, session: Session) -> None:
        """It is over."""
        session.over, session.token = True, None
        self._known.pop(session.id, None)
        for told in session.on_end:
            told()
        session.on_end.clear()

    def expire(self) -> None:
        """Ends those whose time is over."""
        for session in self.all():
            if self._expired(session):
                self.end(session)

    def all(self) -> Iterable[Session]:
        """Those that are not over, as far as anybody has looked."""
        return list(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def _expired(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used >= self._idle or now - session.made >= self._longest
