"""The log section of a job's page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from nicegui import background_tasks, ui

from convoy_operator import errors
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core.formatting import duration
from convoy_operator.dashboard.core.logs import FIRST_READ, Tail
from convoy_operator.dashboard.gateway import FOLLOW_SECONDS
from convoy_operator.dashboard.log_limit import LogLimitError
from convoy_operator.dashboard.pages.components import Field, Number
from convoy_operator.dashboard.pages.elements import box, button, set_attribute, set_text, show, text

SPACING = 0.5
"""Minimum number of seconds between two updates of a followed log."""
SPACING_EACH = 0.1
"""Seconds that each open log of any user adds to the interval. The interval is at least SPACING."""
MAX_LOG = 32 * 2**20
"""Maximum number of characters of a log that one attempt reads."""
FindContainer = Callable[[int], tuple[str, str] | str]
"""Function that returns the pod and the container of a rank, or the reason why the rank has no log."""


class Logs:
    """The log section of one job page."""

    def __init__(
        self, context: Context, session: Session, namespace: str, find: FindContainer, rank: str = ""
    ) -> None:
        """Build the section. `rank` is the preselected rank."""
        self._context = context
        self._session = session
        self._namespace = namespace
        self._find = find
        self._rank = _rank(rank)
        self._task: asyncio.Task[None] | None = None
        self._client = ui.context.client
        with box("div", "filters"):
            self._range = text("span", "Rank", aria_hidden="true")
            start = str(self._rank) if rank else ""
            self._field = Field("Rank", self._choose, hint="0", number=Number(0, anchor="logs"), start=start)
            button("Show the last 500 lines", lambda: self._start(False))
            button("Follow", lambda: self._start(True))
            self._stop_button = button("Stop", lambda: self._stop_reading("stopped"))
            self._status = text("span", "", "count", role="status")
        self._lines = text("pre", "", "log", tabindex="0", role="log", aria_label="Log", aria_live="off")
        show(self._lines, False)
        set_attribute(self._stop_button, "disabled", True)
        # The handler must take no argument. If it took one, NiceGUI would pass its client.
        self._client.on_delete(lambda: self._stop_reading())  # noqa: PLW0108

    def set_rank_count(self, ranks: int) -> None:
        """Set the number of ranks."""
        highest = max(0, ranks - 1)
        set_text(self._range, f"Rank (0 to {highest})")
        set_attribute(self._field, "label", f"Rank, 0 to {highest}")
        set_attribute(self._field, "most", highest)

    def _choose(self, typed: str) -> None:
        self._context.session_resolver.sessions.use(self._session)
        self._rank = _rank(typed)

    def _stop_reading(self, why: str = "") -> None:
        if self._task is None:
            return
        self._task.cancel()
        self._task = None
        if why:
            set_text(self._status, why)

    def _start(self, follow: bool) -> None:
        self._context.session_resolver.sessions.use(self._session)
        self._stop_reading()
        self._task = background_tasks.create(self._read_safely(follow), name="log")

    async def _read_safely(self, follow: bool) -> None:
        rank = self._rank
        with self._client:
            try:
                set_attribute(self._stop_button, "disabled", None)
                if why := await self._refusal():
                    set_text(self._status, why)
                    return
                with self._context.log_limit.acquire(self._session.identity.user):
                    await self._read(rank, follow)
            except (errors.ApiError, LogLimitError) as fault:
                set_text(self._status, f"rank {rank}: {getattr(fault, 'message', '') or fault}")
            finally:
                set_attribute(self._stop_button, "disabled", True)

    async def _refusal(self) -> str:
        """Return the reason why the user may not read the log; an empty text if the user may."""
        access, namespace = self._session.access, self._namespace
        if self._session.over:
            return "your session has ended"
        if not await access.namespaces([namespace]):
            return "there is no such job, or you may not see it"
        if not await access.logs(namespace):
            return f"you may not read logs in namespace {namespace} (permission get pods/log)"
        return ""

    async def _read(self, rank: int, follow: bool) -> None:
        found = self._find(rank)
        if isinstance(found, str):
            set_text(self._status, found)
            return
        pod, container = found
        where = f"rank {rank} in pod {pod}"
        show(self._lines, True)
        set_text(self._status, f"reading {where}")
        lines, following = FIRST_READ, ""
        wanted: int | None = lines
        while wanted is not None:
            lines, tail = wanted, Tail(rank)
            whole = await self._read_tail(tail, pod, container, lines)
            wanted = tail.lines_to_read(lines) if whole else None
        set_text(self._lines, tail.text)
        summary = (
            tail.summary(lines)
            if whole
            else "the log is too long to read completely; its newest lines are missing"
        )
        if follow:
            set_text(self._status, f"following {where}")
            following = await self._follow(Tail(rank), pod, container, lines)
        set_text(self._status, f"{where}: {following or summary}")

    async def _read_tail(self, tail: Tail, pod: str, container: str, lines: int) -> bool:
        """Read the last `lines` lines of a container's log into `tail`. Return False if they have more than
        `MAX_LOG` characters.
        """
        length = 0
        pieces = self._context.gateway.log(self._namespace, pod, container, lines=lines, follow=False)
        async with aclosing(pieces):
            async for piece in pieces:
                tail.add(piece)
                length += len(piece)
                if length > MAX_LOG:
                    return False
        tail.end()
        return True

    async def _follow(self, tail: Tail, pod: str, container: str, lines: int) -> str:
        """Show new lines of the log until it ends. Return a text that says why it ended."""
        shower = asyncio.create_task(self._show(tail))
        ended = "the log has ended"
        try:
            async with asyncio.timeout(FOLLOW_SECONDS):
                pieces = self._context.gateway.log(self._namespace, pod, container, lines=lines, follow=True)
                async with aclosing(pieces):
                    async for piece in pieces:
                        tail.add(piece)
        except TimeoutError:
            ended = f"stopped after {duration(FOLLOW_SECONDS)}; press Follow to continue"
        finally:
            shower.cancel()
        tail.end()
        set_text(self._lines, tail.text)
        return ended

    async def _show(self, tail: Tail) -> None:
        while True:
            await asyncio.sleep(max(SPACING, SPACING_EACH * len(self._context.log_limit)))
            # Check the permission again: it may have been revoked since the log was opened.
            if why := await self._refusal():
                set_text(self._lines, "")
                self._stop_reading(why)
                return
            set_text(self._lines, tail.text)


def _rank(typed: str) -> int:
    return int(typed) if typed.isdecimal() and len(typed) < 7 else 0
