"""The overview page: problems, TrainingJobs, ServingJobs and nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from convoy_controllers.resources import EXPERIMENTS, SERVING_JOBS
from convoy_crds.experiment import Experiment
from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import (
    attention,
    experiments,
    jobs,
    nodes,
    serving_jobs,
    spot_pools,
    table_query,
)
from convoy_operator.dashboard.core.formatting import counted
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Column
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import AddressQuery
from convoy_operator.dashboard.pages.elements import box, show, text
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.parts import Chips
from convoy_operator.dashboard.pages.table import Filters, Table


def register(context: Context) -> None:
    """Register the overview page with NiceGUI."""

    @ui.page("/", dark=None, response_timeout=live.BUILD_SECONDS)
    async def overview(request: Request) -> None:
        page = Overview(context, request.scope[SESSION], request.query_params, location_of(request.scope))
        await live.keep_updated(context, page)


class Overview:
    """The overview page, opened by one user."""

    def __init__(self, context: Context, session: Session, query: Mapping[str, str], address: str) -> None:
        """Build the page. `address` is the page's path and query, and `query` holds the values of the
        query.
        """
        self._context = context
        self.session = session
        self._allowed: frozenset[str] = frozenset()
        self._allowed_servers: frozenset[str] = frozenset()
        self._allowed_experiments: frozenset[str] = frozenset()
        self._everywhere = self._all_servers = self._all_experiments = self._sees_nodes = False
        self.frame = Frame(context, session, "", address)
        with self.frame.content:
            self._address_query = AddressQuery()
            text("h1", "Overview")
            with box("div", "sums"):
                self._job_counts = Chips("Jobs by phase")
                self._server_counts = Chips("ServingJobs by state")
                self._experiment_counts = Chips("Experiments by phase")
                self._node_counts = Chips("Nodes by state")
            with box("section", aria_labelledby="attention"):
                text("h2", "Needs attention", id="attention")
                self._attention = Table(
                    "Needs attention", attention.COLUMNS, "Nothing needs attention.", used=self._used
                )
            with box("section", aria_labelledby="jobs"):
                text("h2", "Jobs", id="jobs")
                self._jobs = self._table("jobs", jobs.COLUMNS, "", query)
            with box("section", aria_labelledby="serving"):
                text("h2", "ServingJobs", id="serving")
                self._servers = self._table("serving", serving_jobs.COLUMNS, "", query)
            with box("section", aria_labelledby="experiments"):
                text("h2", "Experiments", id="experiments")
                self._experiments = self._table("experiments", experiments.COLUMNS, "", query)
            self._spot_section = box("section", aria_labelledby="spot")
            with self._spot_section:
                text("h2", "Spot pools", id="spot")
                self._pools = self._table("spot", spot_pools.COLUMNS, "There are no SpotPools.", query)
            self._node_section = box("section", aria_labelledby="nodes")
            with self._node_section:
                text("h2", "Nodes", id="nodes")
                self._nodes = self._table("nodes", nodes.COLUMNS, "There are no nodes.", query)

    def _table(self, name: str, columns: Sequence[Column], empty: str, query: Mapping[str, str]) -> Table:
        """Create a table. The browser's address holds its filters, order and page."""
        start = table_query.parse_choice(query, name, len(columns))
        self._address_query.set_part(name, table_query.format_choice(name, start))
        return Table(
            name,
            columns,
            empty,
            used=self._used,
            filters=Filters(
                start, lambda chosen: self._update_location(name, table_query.format_choice(name, chosen))
            ),
        )

    def _update_location(self, part: str, query: Mapping[str, str]) -> None:
        self._address_query.set_part(part, query)
        self.frame.set_location(f"/?{self._address_query.query}" if self._address_query.query else "/")

    def _used(self) -> None:
        self._context.session_resolver.sessions.use(self.session)

    async def check_access(self) -> None:
        """See `live.Page.check_access`."""
        access = self.session.access
        present = {kept.namespace for kept in self._context.cache.jobs}
        self._allowed = await access.namespaces(sorted(present))
        self._everywhere, self._sees_nodes = await access.everywhere(), await access.nodes()
        serving = {kept.namespace for kept in self._context.cache.servers}
        self._allowed_servers = await access.namespaces(sorted(serving), SERVING_JOBS)
        self._all_servers = await access.everywhere(SERVING_JOBS)
        present = {kept.namespace for kept in self._context.cache.experiments}
        self._allowed_experiments = await access.namespaces(sorted(present), EXPERIMENTS)
        self._all_experiments = await access.everywhere(EXPERIMENTS)

    def show(self) -> None:
        """See `live.Page.show`."""
        cache, sees_nodes, now = self._context.cache, self._sees_nodes, datetime.now(UTC)
        seen = [kept for kept in cache.jobs if kept.namespace in self._allowed]
        phases = jobs.counts(seen)
        self._jobs.empty = jobs.nothing(self.session.identity.user, self._everywhere)
        self._jobs.show(jobs.rows(seen, now, cache.rows), phases)
        servers = [kept for kept in cache.servers if kept.namespace in self._allowed_servers]
        states_served = serving_jobs.counts(servers)
        self._servers.empty = serving_jobs.nothing(self.session.identity.user, self._all_servers)
        self._servers.show(serving_jobs.rows(servers, now, cache.serving_rows), states_served)
        self._show_experiments(now)
        policies = cache.policies_by_name() if sees_nodes else {}
        current = cache.health_by_node() if sees_nodes else {}
        node_rows = []
        if sees_nodes:
            node_rows = nodes.rows(cache.nodes, current, policies, cache.pods_per_node(), now)
        pool_rows = spot_pools.rows(cache.pools) if sees_nodes else []
        show(self._spot_section, bool(pool_rows))
        self._pools.show(pool_rows, spot_pools.counts(pool_rows))
        states = nodes.counts(node_rows)
        show(self._node_section, sees_nodes)
        self._nodes.show(node_rows, states)
        concerns = attention.gather(
            [
                *attention.of_jobs(seen, servers, now),
                *attention.of_experiments(self._seen_experiments()),
                *(spot_pools.concerns(cache.pools) if sees_nodes else ()),
            ],
            cache.healths if sees_nodes else (),
            cache.policies if sees_nodes else (),
            cache.checkpoint_stores if sees_nodes else (),
            current,
        )
        self._attention.show(attention.rows(concerns, now))
        self._job_counts.show(counted(len(seen), "job"), phases, jobs.TONES)
        self._server_counts.show(counted(len(servers), "ServingJob"), states_served, serving_jobs.TONES)
        total = counted(len(node_rows), "node") if sees_nodes else ""
        self._node_counts.show(total, states, nodes.TONES)

    def _seen_experiments(self) -> list[ParsedObject[Experiment]]:
        return [
            kept for kept in self._context.cache.experiments if kept.namespace in self._allowed_experiments
        ]

    def _show_experiments(self, now: datetime) -> None:
        seen = self._seen_experiments()
        phases = experiments.counts(seen)
        self._experiments.empty = experiments.nothing(self.session.identity.user, self._all_experiments)
        self._experiments.show(experiments.rows(seen, now, self._context.cache.experiment_rows), phases)
        self._experiment_counts.show(counted(len(seen), "experiment"), phases, experiments.TONES)
