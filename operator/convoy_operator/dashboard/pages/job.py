"""The page of one job."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from nicegui import ui

from convoy_controllers.resources import TRAINING_JOBS
from convoy_crds.layout import present, world_size
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import advice, charts, job, jobs, metrics, timeline, topology, traces
from convoy_operator.dashboard.core.formatting import clock
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import Chart
from convoy_operator.dashboard.pages.elements import box, set_text, show, text
from convoy_operator.dashboard.pages.logs import Logs
from convoy_operator.dashboard.pages.metric_charts import MetricCharts
from convoy_operator.dashboard.pages.one_job import OneJobPage
from convoy_operator.dashboard.pages.parts import FactList, StackedBar
from convoy_operator.dashboard.pages.topology import TopologySection

NO_STEPS = "No step is recorded yet."


def register(context: Context) -> None:
    """Register the job page with NiceGUI."""

    @ui.page("/jobs/{namespace}/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_job(request: Request, namespace: str, name: str) -> None:
        rank = request.query_params.get("rank", "")
        page = JobPage(context, request.scope[SESSION], namespace, name, location_of(request.scope), rank)
        await live.keep_updated(context, page)


class JobPage(OneJobPage[TrainingJob]):
    """The page of one job, opened by one user."""

    RESOURCE = TRAINING_JOBS
    NOUN = "job"

    def __init__(
        self, context: Context, session: Session, namespace: str, name: str, location: str, rank: str
    ) -> None:
        """Build the page. `rank` is the rank in the page's address, whose log is preselected."""
        self._rank = rank
        self._logs: Logs | None = None
        super().__init__(context, session, namespace, name, location)

    def _build(self) -> None:
        self._facts = FactList()
        with box("section", "charts", aria_label="Curves"):
            with box("div"):
                text("h2", "Loss")
                self._loss = Chart("Loss over steps", charts.line(None, "losses", "", charts.BLUE))
            with box("div"):
                text("h2", "Throughput")
                self._rate = Chart(
                    "Samples per second over steps", charts.line(None, "rates", "samples/s", charts.TEAL)
                )
            with box("div", "broad"):
                text("h2", "Progress")
                self._progress = Chart("Progress over time", charts.progress(None))
            self._curves_note = text("p", "", "quiet")
        self._metrics = self._table("Metrics", "metrics", metrics.COLUMNS, "The ranks report no metrics.")
        self._metric_charts = MetricCharts()
        self._result = self._table("Result", "result", job.RESULT, "The job has set no result.")
        with box("section", aria_labelledby="goodput"):
            text("h2", "Goodput", id="goodput")
            self._goodput = StackedBar("Time by cause", "No time is recorded yet.")
        self._stragglers = self._table(
            "Stragglers",
            "stragglers",
            job.STRAGGLERS,
            "No straggler is named.",
        )
        self._straggler_note = text("p", "", "quiet")
        self._topology = TopologySection()
        with box("div") as self._advice_section:
            self._advice = self._table(
                "Advice", "advice", advice.COLUMNS, "The job violates no rule of advice."
            )
        with box("section", aria_labelledby="trace") as self._trace:
            text("h2", "Trace", id="trace")
            self._trace_facts = FactList()
            self._trace_note = text("p", "", "quiet")
        self._timeline = self._table(
            "Timeline",
            "timeline",
            timeline.COLUMNS,
            "No events or restarts are recorded.",
        )
        self._checkpoints = self._table(
            "Checkpoints", "checkpoints", job.CHECKPOINTS, "No checkpoint tiers are configured."
        )
        self._saves = text("p", "", "quiet")
        self._conditions = self._table("Conditions", "conditions", job.CONDITIONS, "No conditions yet.")
        self._pods = self._table("Pods", "pods", job.PODS, "The job has no pods.")
        with box("section", aria_labelledby="logs") as self._log_section:
            text("h2", "Logs", id="logs")
            if not self._context.settings.logs:
                text(
                    "p",
                    "Logs are disabled (chart value dashboard.logs). Use the command convoy logs.",
                    "empty",
                )

    def _found(self) -> ParsedObject[TrainingJob] | None:
        return self._context.cache.jobs.get(self._namespace, self._name)

    def _show_timeline(self, uid: str, model: TrainingJob, now: datetime) -> None:
        seen = self._context.cache.restarts.get(uid)
        self._timeline.show(timeline.rows(timeline.entries(model, self._events.of(uid), seen), now))

    def _show(self, parsed: ParsedObject[TrainingJob], model: TrainingJob, now: datetime) -> None:
        cache = self._context.cache
        self._show_state(jobs.phase_name(model), jobs.phase_tone(model), jobs.why(model))
        self._facts.show(job.facts(model, now))
        curve = cache.curves.get(parsed.uid)
        self._loss.draw(charts.line(curve, "losses", "", charts.BLUE))
        self._rate.draw(charts.line(curve, "rates", "samples/s", charts.TEAL))
        self._progress.draw(charts.progress(curve))
        since = curve.since if curve else now
        first = " " + NO_STEPS if curve is None or not curve.times else ""
        set_text(self._curves_note, f"Recorded since {clock(since)}. Earlier values are not kept.{first}")
        engine = cache.engine_of(model)
        self._metrics.show(metrics.rows(model, engine))
        self._metric_charts.show(curve.metrics if curve else {}, metrics.declared(engine))
        self._result.show(job.result_rows(model))
        self._goodput.show(job.shares(model, now))
        self._stragglers.show(job.straggler_rows(model))
        set_text(self._straggler_note, job.straggler_note(model))
        show(self._advice_section, model.spec.lint is not None)
        self._advice.show(advice.rows(model.status.advice))
        show(self._trace, model.status.trace is not None)
        self._trace_facts.show(traces.facts(model))
        set_text(self._trace_note, model.status.trace.message if model.status.trace else "")
        self._show_timeline(parsed.uid, model, now)
        self._checkpoints.show(job.checkpoint_rows(model, now))
        set_text(self._saves, job.checkpoint_note(model))
        self._conditions.show(job.condition_rows(model, now))
        healths = cache.health_by_node() if self._sees_nodes else {}
        pods = cache.pods_of(parsed)
        nodes = cache.nodes_of(pods) if self._sees_nodes else None
        self._topology.show(topology.view(model, pods, nodes, healths))
        self._pods.show(job.pod_rows(model, pods, healths))
        if self._logs is None and self._context.settings.logs:
            # Create the log section only after the user was allowed to see the job.
            with self._log_section:
                self._logs = Logs(self._context, self.session, self._namespace, self._find_rank, self._rank)
        if self._logs is not None:
            self._logs.set_rank_count(world_size(present(model)))

    def _find_rank(self, rank: int) -> tuple[str, str] | str:
        cache, parsed = self._context.cache, self._found()
        if parsed is None or parsed.model is None:
            return "the job no longer exists"
        for slot in present(parsed.model):
            if slot.rank_offset <= rank < slot.rank_offset + slot.processes:
                break
        else:
            return f"{self._name} has no rank {rank}"
        pod = next((pod for pod in cache.pods_of(parsed) if pod.name == slot.pod), None)
        if pod is None:
            return f"rank {rank} has no pod; logs are deleted with their pods"
        return slot.pod, pod.view.container
