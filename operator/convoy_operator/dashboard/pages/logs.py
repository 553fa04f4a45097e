"""The log of a rank, when it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nicegui import background_tasks, ui

from convoy_operator import errors
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core.logs import Tail
from convoy_operator.dashboard.pages.components import Field
from convoy_operator.dashboard.pages.elements import box, button, put, say, show, text

SPACING = 0.5
"""Seconds between two updates of a log that is followed."""
Find = Callable[[int], tuple[str, str, str] | str]
"""Of a rank, the namespace, pod and container; or why there is none."""


class Logs:
    """One reader's view of one job's logs."""

    def __init__(self, context: Context, session: Session, find: Find) -> None:
        self._context = context
        self._session = session
        self._find = find
        self._rank = 0
        self._task: asyncio.Task[None] | None = None
        self._client = ui.context.client
        with box("div", "filters"):
            self._range = text("span", "Rank", aria_hidden="true")
            self._field = Field("Rank", self._choose, kind="number", hint="0", most=0)
            button("Show the last 500 lines", lambda: self._begin(False))
            button("Follow", lambda: self._begin(True))
            self._stop = button("Stop", self._end)
            self._said = text("span", "", "count", role="status")
        self._lines = text("pre", "", "log", tabindex="0", role="log", aria_label="Log", aria_live="off")
        show(self._lines, False)
        put(self._stop, "disabled", True)
        self._client.on_delete(self._end)

    def offer(self, ranks: int) -> None:
        """The job has so many ranks."""
        most = max(0, ranks - 1)
        say(self._range, f"Rank (0 to {most})")
        put(self._field, "label", f"Rank, 0 to {most}")
        put(self._field, "most", most)

    def _choose(self, typed: str) -> None:
        self._context.door.sessions.use(self._session)
        self._rank = int(typed) if typed.isdecimal() and len(typed) < 7 else 0

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _begin(self, follow: bool) -> None:
        self._context.door.sessions.use(self._session)
        self._end()
        self._task = background_tasks.create(self._guarded(follow), name="log")

    async def _guarded(self, follow: bool) -> None:
        rank = self._rank
        with self._client:
            try:
                put(self._stop, "disabled", None)
                await self._read(rank, follow)
            except errors.ApiError as fault:
                say(self._said, f"rank {rank}: {fault.message or fault}")
            finally:
                put(self._stop, "disabled", True)

    async def _read(self, rank: int, follow: bool) -> None:
        found = self._find(rank)
        if isinstance(found, str):
            say(self._said, found)
            return
        namespace, pod, container = found
        if self._session.over or not await self._session.access.logs(namespace):
            say(self._said, f"you may not read logs in namespace {namespace} (get pods/log)")
            return
        tail = Tail(rank)
        show(self._lines, True)
        say(self._said, f"{'following' if follow else 'reading'} rank {rank} in pod {pod}")
        shower = asyncio.create_task(self._show(tail, self._session)) if follow else None
        try:
            async for piece in self._context.gateway.log(namespace, pod, container, follow=follow):
                tail.add(piece)
        finally:
            if shower is not None:
                shower.cancel()
        tail.end()
        say(self._lines, tail.text)
        what = "the log has ended" if follow else "the last lines"
        say(self._said, f"rank {rank} in pod {pod}: {what if tail.text else 'nothing was written'}")

    async def _show(self, tail: Tail, session: Session) -> None:
        while True:
            await asyncio.sleep(SPACING)
            if session.over:
                self._end()
            say(self._lines, tail.text)
