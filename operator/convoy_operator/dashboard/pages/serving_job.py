"""The page of one ServingJob."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import Request
from nicegui import ui

from convoy_controllers.resources import SERVING_JOBS
from convoy_crds.servingjob import ServingJob
from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import advice, charts, serving_job, serving_jobs, timeline
from convoy_operator.dashboard.core.formatting import clock
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import Chart
from convoy_operator.dashboard.pages.elements import box, set_text, show, text
from convoy_operator.dashboard.pages.one_job import OneJobPage
from convoy_operator.dashboard.pages.parts import FactList

LATENCIES = {"p95": "p95", "ttft": "first token p95"}
REQUESTS = {"queue": "waiting", "in_flight": "in flight"}
RATE = {"rate": "requests/s"}


def register(context: Context) -> None:
    """Register the page with NiceGUI."""

    @ui.page("/serving/{namespace}/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_job(request: Request, namespace: str, name: str) -> None:
        page = ServingJobPage(context, request.scope[SESSION], namespace, name, location_of(request.scope))
        await live.keep_updated(context, page)


class ServingJobPage(OneJobPage[ServingJob]):
    """The page of one ServingJob, opened by one user."""

    RESOURCE = SERVING_JOBS
    NOUN = "ServingJob"

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
        self._scaling = self._table(
            "Scaling", "scaling", serving_job.SCALING, "Convoy has not changed a number of replicas."
        )
        self._revisions = self._table(
            "Revisions", "revisions", serving_job.REVISIONS, "No revision is stored yet."
        )
        self._model = self._table("Model", "model", serving_job.MODEL, "The job loads no checkpoint.")
        self._model_note = text("p", "", "quiet")
        with box("div") as self._advice_section:
            self._advice = self._table(
                "Advice", "advice", advice.COLUMNS, "The job violates no rule of advice."
            )
        self._timeline = self._table("Timeline", "timeline", timeline.COLUMNS, "No events are recorded.")
        self._pods = self._table("Pods", "pods", serving_job.PODS, "The job has no pods.")

    def _found(self) -> ParsedObject[ServingJob] | None:
        return self._context.cache.servers.get(self._namespace, self._name)

    def _show_timeline(self, uid: str, model: ServingJob, now: datetime) -> None:
        self._timeline.show(timeline.rows(timeline.of_events(self._events.of(uid)), now))

    def _show(self, parsed: ParsedObject[ServingJob], model: ServingJob, now: datetime) -> None:
        cache, state = self._context.cache, serving_jobs.state(model)
        self._show_state(state, serving_jobs.TONES[state], serving_jobs.why(model))
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
        self._scaling.show(serving_job.scaling_rows(model, now))
        self._revisions.show(serving_job.revision_rows(model))
        self._model.show(serving_job.model_rows(model, now))
        set_text(self._model_note, serving_job.model_note(model))
        show(self._advice_section, model.spec.lint is not None)
        self._advice.show(advice.rows(model.status.advice))
        self._show_timeline(parsed.uid, model, now)
        self._pods.show(serving_job.pod_rows(pods, healths))
