"""The parts that the pages of one job share, whatever the job's kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import ClassVar, Generic

from convoy_controllers.resources import Resource
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core.formatting import clock
from convoy_operator.dashboard.core.objects import M, ParsedObject
from convoy_operator.dashboard.core.rows import Column, Tone
from convoy_operator.dashboard.pages.elements import box, set_classes, set_text, show, text, tone_class
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.job_events import JobEvents
from convoy_operator.dashboard.pages.parts import table_section
from convoy_operator.dashboard.pages.table import Table

DELETED = "The job was deleted. It was last seen at {}."


class OneJobPage(ABC, Generic[M]):
    """The page of one job, opened by one user."""

    RESOURCE: ClassVar[Resource]
    """Resource that the user must be allowed to list in the job's namespace."""
    NOUN: ClassVar[str]
    """Name of the job in messages."""

    def __init__(self, context: Context, session: Session, namespace: str, name: str, location: str) -> None:
        self._context = context
        self.session = session
        self._namespace, self._name = namespace, name
        self._last_seen: datetime | None = None
        """Time when the page last showed the job; None if it never did."""
        self._allowed = self._sees_nodes = False
        self._events = JobEvents(context, namespace, self._on_events)
        self.frame = Frame(context, session, name, location)
        with self.frame.content:
            with box("div", "title"):
                text("h1", f"{namespace}/{name}")
                self._state = text("span", "", "badge", role="status")
            self._why = text("p", "", "sum")
            self._body = box("div")
            with self._body:
                self._build()

    @abstractmethod
    def _build(self) -> None:
        """Build the page's sections."""

    @abstractmethod
    def _found(self) -> ParsedObject[M] | None:
        """Return the job from the cache; None if it does not exist."""

    @abstractmethod
    def _show(self, parsed: ParsedObject[M], model: M, now: datetime) -> None:
        """Show the job in the page's sections."""

    @abstractmethod
    def _show_timeline(self, uid: str, model: M, now: datetime) -> None:
        """Show the job's Events and state changes."""

    def _table(self, title: str, key: str, columns: tuple[Column, ...], empty: str) -> Table:
        return table_section(title, key, columns, empty, used=self._used)

    def _used(self) -> None:
        self._context.session_resolver.sessions.use(self.session)

    async def check_access(self) -> None:
        """See `live.Page.check_access`."""
        access = self.session.access
        self._allowed = bool(await access.namespaces([self._namespace], self.RESOURCE))
        self._sees_nodes = await access.nodes()

    def show(self) -> None:
        """See `live.Page.show`."""
        parsed = self._found()
        if parsed is None or not self._allowed:
            # Show the same text if the job does not exist and if the user may not see it. Otherwise the text
            # would reveal which jobs exist.
            seen = self._allowed and self._last_seen is not None
            missing = f"There is no such {self.NOUN}, or you may not see it."
            self._show_missing(DELETED.format(clock(self._last_seen)) if seen else missing)
        elif parsed.model is None:
            self._show_missing(f"This version of the dashboard cannot read the job: {parsed.parse_error}")
        else:
            show(self._body, True)
            self._last_seen = datetime.now(UTC)
            self._show(parsed, parsed.model, self._last_seen)
            self._events.refresh(parsed.uid)

    def _show_missing(self, why: str) -> None:
        set_text(self._state, "")
        set_text(self._why, why)
        set_classes(self._why, "sum")
        show(self._body, False)

    def _show_state(self, state: str, tone: Tone, why: str) -> None:
        """Show the job's state and its reason at the top of the page."""
        set_text(self._state, state)
        set_classes(self._state, tone_class(tone, badge=True))
        set_text(self._why, why)
        set_classes(self._why, "sum tone-bad" if tone is Tone.BAD else "sum")

    def _on_events(self, uid: str) -> None:
        parsed = self._found()
        if self._allowed and parsed is not None and parsed.uid == uid and parsed.model is not None:
            self._show_timeline(uid, parsed.model, datetime.now(UTC))
