"""The page of one SpotPool."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import conditions, spot_pools
from convoy_operator.dashboard.core.rows import Column
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.elements import box, set_classes, set_text, show, text, tone_class
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.parts import FactList, table_section
from convoy_operator.dashboard.pages.table import Table


def register(context: Context) -> None:
    """Register the page of a SpotPool with NiceGUI."""

    @ui.page("/spot/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_pool(request: Request, name: str) -> None:
        page = SpotPoolPage(context, request.scope[SESSION], name, location_of(request.scope))
        await live.keep_updated(context, page)


class SpotPoolPage:
    """The page of one SpotPool, opened by one user. Users see the jobs and costs of their own namespaces."""

    def __init__(self, context: Context, session: Session, name: str, location: str) -> None:
        self._context = context
        self.session = session
        self._name = name
        self._sees_nodes = False
        self._allowed: frozenset[str] = frozenset()
        self.frame = Frame(context, session, name, location)
        with self.frame.content:
            with box("div", "title"):
                text("h1", f"SpotPool {name}")
                self._state = text("span", "", "badge", role="status")
            self._why = text("p", "", "sum")
            self._body = box("div")
            with self._body:
                self._facts = FactList()
                self._notices = self._table(
                    "Notices", "notices", spot_pools.NOTICES, "No node of the pool has a notice."
                )
                self._grants = self._table(
                    "Granted pods", "grants", spot_pools.GRANTS, "No job that you may list names the pool."
                )
                self._costs = self._table("Cost by use", "cost", spot_pools.COSTS, "No node has cost yet.")
                self._conditions = self._table(
                    "Conditions", "conditions", conditions.COLUMNS, "There are none yet."
                )

    def _table(self, title: str, key: str, columns: tuple[Column, ...], empty: str) -> Table:
        return table_section(title, key, columns, empty, used=self._used)

    def _used(self) -> None:
        self._context.session_resolver.sessions.use(self.session)

    async def check_access(self) -> None:
        """See `live.Page.check_access`."""
        access, pool = self.session.access, self._context.cache.pools.get("", self._name)
        self._sees_nodes = await access.nodes()
        status = pool.model.status if pool is not None and pool.model is not None else None
        present = {one.namespace for one in status.grants} if status is not None else set()
        present |= {one.namespace for one in status.cost.by_namespace} if status is not None else set()
        self._allowed = await access.namespaces(sorted(present))

    def show(self) -> None:
        """See `live.Page.show`."""
        parsed, now = self._context.cache.pools.get("", self._name), datetime.now(UTC)
        pool = parsed.model if parsed is not None else None
        if parsed is None or pool is None or not self._sees_nodes:
            unreadable = parsed is not None and self._sees_nodes
            set_text(self._state, spot_pools.UNREADABLE if unreadable else "")
            set_classes(self._state, "badge")
            missing = "There is no such SpotPool, or you may not see it."
            set_text(self._why, parsed.parse_error if parsed is not None and unreadable else missing)
            show(self._body, False)
            return
        show(self._body, True)
        state = spot_pools.state(pool)
        set_text(self._state, state)
        set_classes(self._state, tone_class(spot_pools.TONES[state], badge=True))
        set_text(self._why, spot_pools.why(pool))
        self._facts.show(spot_pools.facts(pool, now))
        self._notices.show(spot_pools.notice_rows(pool, now))
        self._grants.show(spot_pools.grant_rows(pool, self._allowed))
        self._costs.show(spot_pools.cost_rows(pool, self._allowed))
        self._conditions.show(spot_pools.condition_rows(pool, now))
