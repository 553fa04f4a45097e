"""The page of one ServingJob."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from convoy_controllers.resources import SERVING_JOBS
from convoy_crds.servingjob import ServingJob
from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import charts, serving_job, serving_jobs, timeline
from convoy_operator.dashboard.core.formatting import clock
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.core.rows import Column, Tone
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import Chart
from convoy_operator.dashboard.pages.elements import box, set_classes, set_text, show, text, tone_class
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.job_events import JobEvents
from convoy_operator.dashboard.pages.parts import FactList
from convoy_operator.dashboard.pages.table import Table

DELETED = "The job was deleted. It was last seen at {}."
LATENCIES = {"p95": "p95", "ttft": "first token p95"}
REQUESTS = {"queue": "waiting", "in_flight": "in flight"}
RATE = {"rate": "requests/s"}


def register(context: Context) -> None:
    """Register the page with NiceGUI."""

    @ui.page("/serving/{namespace}/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_job(request: Request, namespace: str, name: str) -> None:
        page = ServingJobPage(context, request.scope[SESSION], namespace, name, location_of(request.scope))
        await live.keep_updated(context, page)


class ServingJobPage:
    """The page of one ServingJob, opened by one user."""

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

    def _build(self) -> None:
        now = datetime.now(UTC)
        self._facts = FactList()
        with box("section", "charts", aria_label="Curves"):
            with box("div"):
                text("h2", "Latency")
                self._latency = Chart("Latency over time", charts.traffic(None, LATENCIES, "ms", now))
            with box("div"):
                text("h2", "Requests in replicas")
                self._queue = Chart("Waiting and running requests", charts.traffic(None, REQUESTS, "", now))
            with box("div", "broad"):
                text("h2", "Throughput")
                self._rate = Chart("Requests per second over time", charts.traffic(None, RATE, "1/s", now))
            self._curves_note = text("p", "", "quiet")
        self._conditions = self._table(
            "Conditions", "conditions", serving_job.CONDITIONS, "No conditions yet."
        )
        self._replicas = self._table("Replicas", "replicas", serving_job.REPLICAS, "The job has no replicas.")
        self._revisions = self._table(
            "Revisions", "revisions", serving_job.REVISIONS, "No revision is stored yet."
        )
        self._model = self._table("Model", "model", serving_job.MODEL, "The job loads no checkpoint.")
        self._model_note = text("p", "", "quiet")
        self._timeline = self._table("Timeline", "timeline", timeline.COLUMNS, "No events are recorded.")
        self._pods = self._table("Pods", "pods", serving_job.PODS, "The job has no pods.")

    def _table(self, title: str, key: str, columns: tuple[Column, ...], empty: str) -> Table:
        with box("section", aria_labelledby=key):
            text("h2", title, id=key)
            return Table(
                title, columns, empty, used=lambda: self._context.session_resolver.sessions.use(self.session)
            )

    async def check_access(self) -> None:
        """See `live.Page.check_access`."""
        access = self.session.access
        self._allowed = bool(await access.namespaces([self._namespace], SERVING_JOBS))
        self._sees_nodes = await access.nodes()

    def show(self) -> None:
        """See `live.Page.show`."""
        parsed = self._context.cache.servers.get(self._namespace, self._name)
        if parsed is None or not self._allowed:
            # Show the same text if the job does not exist and if the user may not see it. Otherwise the text
            # would reveal which jobs exist.
            seen = self._allowed and self._last_seen is not None
            missing = "There is no such ServingJob, or you may not see it."
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

    def _on_events(self, uid: str) -> None:
        if self._allowed:
            self._show_timeline(uid, datetime.now(UTC))

    def _show_timeline(self, uid: str, now: datetime) -> None:
        self._timeline.show(timeline.rows(timeline.of_events(self._events.of(uid)), now))

    def _show(self, parsed: ParsedObject[ServingJob], model: ServingJob, now: datetime) -> None:
        cache, state = self._context.cache, serving_jobs.state(model)
        tone = serving_jobs.TONES[state]
        set_text(self._state, state)
        set_classes(self._state, tone_class(tone, badge=True))
        set_text(self._why, serving_jobs.why(model))
        set_classes(self._why, "sum tone-bad" if tone is Tone.BAD else "sum")
        self._facts.show(serving_job.facts(model, now))
        curve = cache.traffic.get(parsed.uid)
        self._latency.draw(charts.traffic(curve, LATENCIES, "ms", now))
        self._queue.draw(charts.traffic(curve, REQUESTS, "", now))
        self._rate.draw(charts.traffic(curve, RATE, "1/s", now))
        since = clock(curve.since if curve else now)
        set_text(self._curves_note, f"Recorded since {since}. Earlier values are not kept.")
        pods = cache.pods_of(parsed)
        healths = cache.health_by_node() if self._sees_nodes else {}
        self._conditions.show(serving_job.condition_rows(model, now))
        self._replicas.show(serving_job.replica_rows(model, pods, now))
        self._revisions.show(serving_job.revision_rows(model))
        self._model.show(serving_job.model_rows(model, now))
        set_text(self._model_note, serving_job.model_note(model))
        self._show_timeline(parsed.uid, now)
        self._pods.show(serving_job.pod_rows(pods, healths))
