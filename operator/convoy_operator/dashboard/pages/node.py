"""The page of one node."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from convoy_controllers.resources import SERVING_JOBS
from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import charts, distribution, node
from convoy_operator.dashboard.core.nodes import TONES, UNGUARDED, last_of
from convoy_operator.dashboard.core.rows import Column
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import Chart
from convoy_operator.dashboard.pages.elements import box, set_classes, set_text, show, text, tone_class
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.parts import FactList, table_section
from convoy_operator.dashboard.pages.table import Table

NOT_COMPARED = "No sweep has measured this node yet, or too few similar nodes have been measured."


def register(context: Context) -> None:
    """Register the node page with NiceGUI."""

    @ui.page("/nodes/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_node(request: Request, name: str) -> None:
        page = NodePage(context, request.scope[SESSION], name, location_of(request.scope))
        await live.keep_updated(context, page)


class NodePage:
    """The page of one node, or of hardware whose node is deleted, opened by one user."""

    def __init__(self, context: Context, session: Session, name: str, location: str) -> None:
        self._context = context
        self.session = session
        self._name = name
        self._sees_nodes = False
        self._allowed: frozenset[str] = frozenset()
        self._allowed_servers: frozenset[str] = frozenset()
        self.frame = Frame(context, session, name, location)
        with self.frame.content:
            with box("div", "title"):
                text("h1", name)
                self._state = text("span", "", "badge", role="status")
            self._why = text("p", "", "sum")
            self._body = box("div")
            with self._body:
                self._facts = FactList()
                self._notes = text("p", "", "notes")
                with box("section", aria_labelledby="measurements"):
                    text("h2", "Compared with its hardware class", id="measurements")
                    self._strip_box = box("div")
                    with self._strip_box:
                        self._strips = Chart(
                            "Measurements of the node and of its hardware class", charts.strips(())
                        )
                    self._measurements = Table(
                        "Measurements", distribution.COLUMNS, NOT_COMPARED, used=self._used
                    )
                self._evidence = self._table(
                    "Evidence", "evidence", node.EVIDENCE, "No evidence against this node."
                )
                self._timeline = self._table("Timeline", "timeline", node.HISTORY, "No state changes yet.")
                self._sweeps = self._table(
                    "Sweeps", "sweeps", node.SWEEPS, "No recorded sweep tested this node."
                )
                self._jobs = self._table("Jobs", "jobs", node.JOBS, "No jobs that you may list.")

    def _used(self) -> None:
        self._context.session_resolver.sessions.use(self.session)

    def _table(self, title: str, key: str, columns: tuple[Column, ...], empty: str) -> Table:
        return table_section(title, key, columns, empty, used=self._used)

    async def check_access(self) -> None:
        """See `live.Page.check_access`."""
        access = self.session.access
        self._sees_nodes = await access.nodes()
        present = {kept.namespace for kept in self._context.cache.jobs}
        self._allowed = await access.namespaces(sorted(present))
        serving = {kept.namespace for kept in self._context.cache.servers}
        self._allowed_servers = await access.namespaces(sorted(serving), SERVING_JOBS)

    def show(self) -> None:
        """See `live.Page.show`."""
        cache, now = self._context.cache, datetime.now(UTC)
        known = cache.nodes.get("", self._name)
        health = cache.health_by_node().get(self._name)
        if health is None and (by_name := cache.healths.get("", self._name)) is not None:
            health = by_name.model
        if health is None and known is None:
            health = last_of(cache.healths, self._name)
        if (known is None and health is None) or not self._sees_nodes:
            set_text(self._state, "")
            set_classes(self._state, "badge")
            set_text(self._why, "There is no such node, or you may not see it.")
            show(self._body, False)
            return
        show(self._body, True)
        state = health.status.state if health else None
        set_text(self._state, state or UNGUARDED)
        set_classes(self._state, tone_class(TONES[state], badge=True) if state else "badge tone-quiet")
        set_text(self._why, health.status.message if health else "Convoy has no NodeHealth for this node.")
        self._facts.show(node.facts(known, health, now))
        set_text(self._notes, "\n".join(node.notes(health, now)) if health else "")
        hardware = health.metadata.name if health else ""
        classes = [kept.model for kept in cache.classes if kept.model is not None]
        found = distribution.class_of(hardware, classes) if hardware else None
        strips = distribution.strips(hardware, found) if found else []
        show(self._strip_box, bool(strips))
        self._strip_box.style(f"--rows: {len(strips)}")
        self._strips.draw(charts.strips(strips))
        self._measurements.show(distribution.rows(strips))
        self._evidence.show(node.evidence_rows(health, now) if health else [])
        self._timeline.show(node.history_rows(health, now) if health else [])
        self._sweeps.show(node.sweep_rows(cache.sweeps, self._name, hardware, now))
        jobs = [kept for kept in cache.jobs if kept.namespace in self._allowed]
        pods = [pod for pod in cache.pods if pod.view.node == self._name and pod.view.needs_node]
        servers = [kept for kept in cache.servers if kept.namespace in self._allowed_servers]
        self._jobs.show([*node.job_rows(pods, jobs), *node.server_rows(pods, servers)])
