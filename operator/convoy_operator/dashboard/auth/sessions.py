"""The sessions of logged-in users. They are held in memory only, so a restart ends them."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from time import monotonic

from convoy_operator.dashboard.auth.access import Access
from convoy_operator.dashboard.auth.identity import Identity

MAX_SESSIONS, MAX_SESSIONS_PER_USER = 1000, 20
"""Maximum number of sessions of all users together, and of one user."""


@dataclass(eq=False, slots=True)
class Session:
    """The session of one login."""

    id: str = field(repr=False)
    identity: Identity
    access: Access
    token: str | None = field(repr=False)
    """The token of the login, which is reviewed again periodically. None if the session was created without
    a token.
    """
    created: float
    used: float
    over: bool = False
    on_end: list[Callable[[], None]] = field(default_factory=list, repr=False)
    """Functions to call when the session ends."""


class Sessions:
    """The active sessions of all users, with bounds on their number and age."""

    def __init__(self, idle: float, longest: float, clock: Callable[[], float] = monotonic) -> None:
        self._idle = idle
        self._longest = longest
        self._clock = clock
        self._known: dict[str, Session] = {}

    def start(
        self, identity: Identity, access: Access, token: str | None = None, key: str | None = None
    ) -> Session:
        """Create a session of the user. Its id is `key`, or a random text.

        If the user has too many sessions, the user's session that was idle longest ends. If there are too
        many sessions in total, a session of the user with the most sessions ends. So repeated logins of one
        user cannot end the sessions of others.
        """
        held = Counter(one.identity.user for one in self._known.values())
        if held[identity.user] >= MAX_SESSIONS_PER_USER:
            self._end_idlest({identity.user})
        elif len(self._known) >= MAX_SESSIONS:
            most = max(held.values())
            self._end_idlest({user for user, number in held.items() if number == most})
        now = self._clock()
        session = Session(key or secrets.token_urlsafe(32), identity, access, token, now, now)
        self._known[session.id] = session
        return session

    def find(self, key: str) -> Session | None:
        """Return the session with this id, or None if there is none or it has expired."""
        session = self._known.get(key)
        if session is not None and self._expired(session):
            self.end(session)
            return None
        return session

    def use(self, session: Session) -> None:
        """Record that the session was used now."""
        session.used = self._clock()

    def end(self, session: Session) -> None:
        """End the session."""
        session.over, session.token = True, None
        self._known.pop(session.id, None)
        for callback in session.on_end:
            callback()
        session.on_end.clear()

    def expire(self) -> None:
        """End the sessions that have expired."""
        for session in self.all():
            if self._expired(session):
                self.end(session)

    def all(self) -> Iterable[Session]:
        """Return all sessions, including expired ones that `expire` has not ended yet."""
        return list(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def _end_idlest(self, users: Container[str]) -> None:
        of_them = (one for one in self._known.values() if one.identity.user in users)
        self.end(min(of_them, key=lambda one: one.used))

    def _expired(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used >= self._idle or now - session.created >= self._longest
