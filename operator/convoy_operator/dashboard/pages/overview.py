"""The first page: jobs, nodes, and what needs a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from convoy_operator.dashboard.auth.gate import SESSION, place_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import attention, jobs, nodes, place
from convoy_operator.dashboard.core.rows import Column
from convoy_operator.dashboard.core.words import counted
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import Place
from convoy_operator.dashboard.pages.elements import box, show, text
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.parts import Chips
from convoy_operator.dashboard.pages.table import Filters, Table


def register(context: Context) -> None:
    """Makes the page."""

    @ui.page("/", dark=None, response_timeout=live.BUILD_SECONDS)
    async def overview(request: Request) -> None:
        page = Overview(context, request.scope[SESSION], request.query_params, place_of(request.scope))
        await live.keep(context, page)


class Overview:
    """One reader's."""

    def __init__(self, context: Context, session: Session, query: Mapping[str, str], address: str) -> None:
        """`query`: of the page's `address`."""
        self._context = context
        self.session = session
        self._allowed: frozenset[str] = frozenset()
        self._everywhere = self._sees_nodes = False
        self.frame = Frame(context, session, "", address)
        with self.frame.content:
            self._place = Place()
            text("h1", "Overview")
            with box("div", "sums"):
                self._job_counts = Chips("Jobs by phase")
                self._node_counts = Chips("Nodes by state")
            with box("section", aria_labelledby="attention"):
                text("h2", "What needs a person", id="attention")
                self._attention = Table(
                    "What needs a person", attention.COLUMNS, "Nothing needs a person.", used=self._used
                )
            with box("section", aria_labelledby="jobs"):
                text("h2", "Jobs", id="jobs")
                self._jobs = self._table("jobs", jobs.COLUMNS, "", query)
            self._node_section = box("section", aria_labelledby="nodes")
            with self._node_section:
                text("h2", "Nodes", id="nodes")
                self._nodes = self._table("nodes", nodes.COLUMNS, "There are no nodes.", query)

    def _table(self, name: str, columns: Sequence[Column], empty: str, query: Mapping[str, str]) -> Table:
        """One whose filters, order and page are in the address."""
        start = place.choice(query, name, len(columns))
        self._place.say(name, place.query(name, start))
        return Table(
            name,
            columns,
            empty,
            used=self._used,
            filters=Filters(start, lambda chosen: self._moved(name, place.query(name, chosen))),
        )

    def _moved(self, part: str, query: Mapping[str, str]) -> None:
        self._place.say(part, query)
        self.frame.moved(f"/?{self._place.query}" if self._place.query else "/")

    def _used(self) -> None:
        self._context.door.sessions.use(self.session)

    async def ask(self) -> None:
        """See live.Page."""
        access = self.session.access
        present = {kept.namespace for kept in self._context.world.jobs}
        self._allowed = await access.namespaces(sorted(present))
        self._everywhere, self._sees_nodes = await access.everywhere(), await access.nodes()

    def show(self) -> None:
        """See live.Page."""
        world, sees_nodes, now = self._context.world, self._sees_nodes, datetime.now(UTC)
        seen = [kept for kept in world.jobs if kept.namespace in self._allowed]
        phases = jobs.counts(seen)
        self._jobs.empty = jobs.nothing(self.session.identity.user, self._everywhere)
        self._jobs.show(jobs.rows(seen, now, world.rows), phases)
        policies = world.policies_by_name() if sees_nodes else {}
        current = world.health_by_node() if sees_nodes else {}
        node_rows = []
        if sees_nodes:
            node_rows = nodes.rows(world.nodes, current, policies, world.pods_per_node(), now)
        states = nodes.counts(node_rows)
        show(self._node_section, sees_nodes)
        self._nodes.show(node_rows, states)
        concerns = attention.gather(
            seen,
            world.healths if sees_nodes else (),
            world.policies if sees_nodes else (),
            world.checkpoint_stores if sees_nodes else (),
            current,
            now,
        )
        self._attention.show(attention.rows(concerns, now))
        self._job_counts.show(counted(len(seen), "job"), phases, jobs.TONES)
        told = counted(len(node_rows), "node") if sees_nodes else ""
        self._node_counts.show(told, states, nodes.TONES)
