"""The page with the lists of the cluster-scoped objects, and the page of one such object."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from convoy_controllers.resources import resource_of
from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import cluster_object, conditions, table_query
from convoy_operator.dashboard.core.cluster_objects import LISTS, TONES, UNREADABLE, ObjectList, counts
from convoy_operator.dashboard.core.rows import Tone
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import AddressQuery
from convoy_operator.dashboard.pages.elements import box, set_classes, set_text, show, text, tone_class
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.parts import FactList, table_section
from convoy_operator.dashboard.pages.table import Filters, Table

_BY_PLURAL = {one.kind.plural: one for one in LISTS}


def register(context: Context) -> None:
    """Register both pages with NiceGUI."""

    @ui.page("/cluster", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_lists(request: Request) -> None:
        session, query = request.scope[SESSION], request.query_params
        await live.keep_updated(context, ClusterPage(context, session, query, location_of(request.scope)))

    @ui.page("/cluster/{plural}/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_object(request: Request, plural: str, name: str) -> None:
        session, location = request.scope[SESSION], location_of(request.scope)
        await live.keep_updated(context, ClusterObjectPage(context, session, plural, name, location))


class ClusterPage:
    """The lists of the cluster-scoped objects, opened by one user."""

    def __init__(self, context: Context, session: Session, query: Mapping[str, str], address: str) -> None:
        """Build the page. `address` is the page's path and query, and `query` holds the values of the
        query.
        """
        self._context = context
        self.session = session
        self._allowed: frozenset[str] = frozenset()
        self.frame = Frame(context, session, "Cluster", address)
        self._tables: dict[str, Table] = {}
        with self.frame.content:
            self._address_query = AddressQuery()
            text("h1", "Cluster")
            for one in LISTS:
                with box("section", aria_labelledby=one.kind.plural):
                    text("h2", one.title, id=one.kind.plural)
                    self._tables[one.kind.plural] = self._table(one, query)

    def _table(self, one: ObjectList, query: Mapping[str, str]) -> Table:
        """Create a table. The browser's address holds its filters, order and page."""
        name, columns = one.kind.plural, one.columns
        start = table_query.parse_choice(query, name, len(columns))
        self._address_query.set_part(name, table_query.format_choice(name, start))
        filters = Filters(start, lambda chosen: self._locate(name, table_query.format_choice(name, chosen)))
        return Table(one.title, columns, one.empty, used=self._used, filters=filters)

    def _locate(self, part: str, query: Mapping[str, str]) -> None:
        self._address_query.set_part(part, query)
        chosen = self._address_query.query
        self.frame.set_location(f"/cluster?{chosen}" if chosen else "/cluster")

    def _used(self) -> None:
        self._context.session_resolver.sessions.use(self.session)

    async def check_access(self) -> None:
        """See `live.Page.check_access`."""
        access = self.session.access
        self._allowed = frozenset(
            [plural for plural, one in _BY_PLURAL.items() if await access.everywhere(resource_of(one.kind))]
        )

    def show(self) -> None:
        """See `live.Page.show`."""
        now = datetime.now(UTC)
        for one in LISTS:
            plural, table = one.kind.plural, self._tables[one.kind.plural]
            allowed = plural in self._allowed
            table.empty = one.empty if allowed else f"You may not list {plural}.{one.kind.group}."
            rows = one.rows(self._context.cache.objects(one.kind), now) if allowed else []
            table.show(rows, counts(rows))


class ClusterObjectPage:
    """The page of one cluster-scoped object, opened by one user."""

    def __init__(self, context: Context, session: Session, plural: str, name: str, location: str) -> None:
        self._context = context
        self.session = session
        self._name = name
        self._list = _BY_PLURAL.get(plural)
        self._allowed = False
        self.frame = Frame(context, session, name, location)
        page = cluster_object.PAGES.get(plural)
        with self.frame.content:
            with box("div", "title"):
                text("h1", f"{self._list.kind.name} {name}" if self._list else name)
                self._state = text("span", "", "badge", role="status")
            self._why = text("p", "", "sum")
            self._body = box("div")
            self._parts: list[tuple[cluster_object.Part, Table]] = []
            with self._body:
                self._facts = FactList()
                for part in page.parts if page else ():
                    table = table_section(part.title, part.key, part.columns, part.empty, self._used)
                    self._parts.append((part, table))
                self._condition_section = box("div")
                with self._condition_section:
                    self._conditions = table_section(
                        "Conditions",
                        "conditions",
                        conditions.COLUMNS,
                        "There are none yet.",
                        self._used,
                    )
                if self._list:
                    text("p", f"The whole object: kubectl get {plural} {name} -o yaml", "quiet")

    def _used(self) -> None:
        self._context.session_resolver.sessions.use(self.session)

    async def check_access(self) -> None:
        """See `live.Page.check_access`."""
        known = self._list
        self._allowed = known is not None and await self.session.access.everywhere(resource_of(known.kind))

    def show(self) -> None:
        """See `live.Page.show`."""
        known, now = self._list, datetime.now(UTC)
        parsed = self._context.cache.objects(known.kind).get("", self._name) if known else None
        if known is None or parsed is None or not self._allowed:
            noun = known.kind.name if known else "kind"
            self._show_state("", Tone.PLAIN, f"There is no such {noun}, or you may not see it.")
        elif parsed.model is None:
            self._show_state(UNREADABLE, Tone.BAD, parsed.parse_error)
        else:
            found = parsed.model
            state = known.state(found)
            self._show_state(state, TONES[state], known.why(found))
            self._facts.show(cluster_object.PAGES[known.kind.plural].facts(found, now))
            for part, table in self._parts:
                table.show(part.rows(found, now))
            rows = cluster_object.condition_rows(found, now)
            show(self._condition_section, bool(rows))
            self._conditions.show(rows)
            show(self._body, True)
            return
        show(self._body, False)

    def _show_state(self, state: str, tone: Tone, why: str) -> None:
        set_text(self._state, state)
        set_classes(self._state, tone_class(tone, badge=True) if state else "badge")
        set_text(self._why, why)
