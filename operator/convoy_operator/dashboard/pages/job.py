"""The page of one job."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from fastapi import Request
from nicegui import background_tasks, ui

from convoy_crds.layout import present, world_size
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import errors
from convoy_operator.dashboard.auth.gate import SESSION, place_of
from convoy_operator.dashboard.auth.sessions import Session
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import charts, happenings, job, jobs, metrics
from convoy_operator.dashboard.core.objects import Kept
from convoy_operator.dashboard.core.rows import Column, Tone
from convoy_operator.dashboard.core.words import clock
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.components import Chart
from convoy_operator.dashboard.pages.elements import box, dress, say, show, text, tone_class
from convoy_operator.dashboard.pages.frame import Frame
from convoy_operator.dashboard.pages.logs import Logs
from convoy_operator.dashboard.pages.metric_charts import MetricCharts
from convoy_operator.dashboard.pages.parts import Bar, Facts
from convoy_operator.dashboard.pages.table import Table
from convoy_operator.gateway import Object

EVENTS_SECONDS = 5.0
"""Between two looks at the job's Events."""
GONE = "The job has been deleted: it was last seen at {}."
WAIT = "The first steps are still to come."


def register(context: Context) -> None:
    """Makes the page."""

    @ui.page("/jobs/{namespace}/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_job(request: Request, namespace: str, name: str) -> None:
        rank = request.query_params.get("rank", "")
        page = JobPage(context, request.scope[SESSION], namespace, name, place_of(request.scope), rank)
        await live.keep(context, page)


class JobPage:
    """One reader's view of one job."""

    def __init__(
        self, context: Context, session: Session, namespace: str, name: str, place: str, rank: str
    ) -> None:
        """`rank`: whose log is asked for, as the address says."""
        self._context = context
        self.session = session
        self._namespace, self._name = namespace, name
        self._seen: datetime | None = None
        """When the job was last there."""
        self._rank = rank
        self._allowed = self._sees_nodes = False
        self._logs: Logs | None = None
        self._events: tuple[str, list[Object]] = ("", [])
        """Of the job with that uid: another one may have its name since."""
        self._asked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._client = ui.context.client
        self.frame = Frame(context, session, name, place)
        with self.frame.content:
            with box("div", "title"):
                text("h1", f"{namespace}/{name}")
                self._phase = text("span", "", "badge", role="status")
            self._why = text("p", "", "sum")
            self._all = box("div")
            with self._all:
                self._build()

    def _build(self) -> None:
        self._facts = Facts()
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
                text("h2", "Steps")
                self._course = Chart("Steps over time", charts.course(None))
            self._known = text("p", "", "quiet")
        self._metrics = self._table(
            "Metrics", "metrics", metrics.COLUMNS, "Its ranks report no metrics of their own."
        )
        self._metric_charts = MetricCharts()
        with box("section", aria_labelledby="goodput"):
            text("h2", "Where its time went", id="goodput")
            self._goodput = Bar("Time by cause", "Nothing has been counted yet.")
        self._stragglers = self._table(
            "Who is slow",
            "stragglers",
            job.STRAGGLERS,
            "No rank keeps the others waiting.",
        )
        self._past = self._table(
            "What became of it",
            "past",
            happenings.COLUMNS,
            "Nothing yet, or nothing is kept of it.",
        )
        self._checkpoints = self._table("Checkpoints", "checkpoints", job.CHECKPOINTS, "No tiers are used.")
        self._saves = text("p", "", "quiet")
        self._conditions = self._table("Conditions", "conditions", job.CONDITIONS, "None yet.")
        self._pods = self._table("Pods by rank", "pods", job.PODS, "It has no pods now.")
        with box("section", aria_labelledby="logs") as self._log_section:
            text("h2", "Logs", id="logs")
            if not self._context.settings.logs:
                text("p", "Logs are switched off (dashboard.logs of the chart): ask convoy logs.", "empty")

    def _table(self, title: str, key: str, columns: tuple[Column, ...], empty: str) -> Table:
        with box("section", aria_labelledby=key):
            text("h2", title, id=key)
            return Table(title, columns, empty, used=lambda: self._context.door.sessions.use(self.session))

    async def ask(self) -> None:
        """See live.Page."""
        access = self.session.access
        self._allowed = bool(await access.namespaces([self._namespace]))
        self._sees_nodes = await access.nodes()

    def show(self) -> None:
        """See live.Page."""
        kept = self._context.world.jobs.get(self._namespace, self._name)
        if kept is None or not self._allowed:
            # The same for both: who may not list jobs there is not told which there are.
            seen = self._allowed and self._seen is not None
            self._gone(
                GONE.format(clock(self._seen)) if seen else "There is no such job, or you may not see it."
            )
        elif kept.model is None:
            self._gone(f"This version cannot read it: {kept.flaw}")
        else:
            show(self._all, True)
            self._seen = datetime.now(UTC)
            self._show(kept, kept.model, self._seen)
            self._look_at_events(kept.uid)

    def _gone(self, why: str) -> None:
        say(self._phase, "")
        say(self._why, why)
        dress(self._why, "sum")
        show(self._all, False)

    def _look_at_events(self, uid: str) -> None:
        """In the background: no answer may keep the rest of the page waiting."""
        looking = self._looking is not None and not self._looking.done()
        if looking or time.monotonic() - self._asked < EVENTS_SECONDS:
            return
        self._asked = time.monotonic()
        self._looking = background_tasks.create(self._load_events(uid), name="events")

    async def _load_events(self, uid: str) -> None:
        try:
            self._events = uid, await self._context.past.of(self._namespace, uid)
        except errors.ApiError:
            return  # what was seen before stays; the banner says that the API server is away
        kept = self._context.world.jobs.get(self._namespace, self._name)
        shown = kept is not None and kept.uid == uid and self._allowed and not self._client.is_deleted
        if shown and kept is not None and kept.model is not None:
            with self._client:
                self._show_past(uid, kept.model, datetime.now(UTC))

    def _show_past(self, uid: str, model: TrainingJob, now: datetime) -> None:
        of, events = self._events
        seen = self._context.world.restarts.of(uid)
        self._past.show(happenings.rows(happenings.timeline(model, events if of == uid else (), seen), now))

    def _show(self, kept: Kept[TrainingJob], model: TrainingJob, now: datetime) -> None:
        world = self._context.world
        say(self._phase, jobs.phase_name(model))
        dress(self._phase, tone_class(jobs.phase_tone(model), badge=True))
        say(self._why, jobs.why(model))
        dress(self._why, "sum tone-bad" if jobs.phase_tone(model) is Tone.BAD else "sum")
        self._facts.show(job.facts(model, now))
        curve = world.curves.get(kept.uid)
        self._loss.draw(charts.line(curve, "losses", "", charts.BLUE))
        self._rate.draw(charts.line(curve, "rates", "samples/s", charts.TEAL))
        self._course.draw(charts.course(curve))
        since = curve.since if curve else now
        first = " " + WAIT if curve is None or not curve.times else ""
        say(self._known, f"Known since {clock(since)}: of what was before nothing is kept.{first}")
        engine = world.engine_of(model)
        self._metrics.show(metrics.rows(model, engine))
        self._metric_charts.show(curve.metrics if curve else {}, metrics.declared(engine))
        self._goodput.show(job.shares(model, now))
        self._stragglers.show(job.straggler_rows(model))
        self._show_past(kept.uid, model, now)
        self._checkpoints.show(job.checkpoint_rows(model, now))
        say(self._saves, job.checkpoint_note(model))
        self._conditions.show(job.condition_rows(model, now))
        healths = world.health_by_node() if self._sees_nodes else {}
        self._pods.show(job.pod_rows(model, world.pods_of(kept), healths))
        if self._logs is None and self._context.settings.logs:
            # Not before the job was shown: what a page has, its reader can press.
            with self._log_section:
                self._logs = Logs(self._context, self.session, self._namespace, self._find, self._rank)
        if self._logs is not None:
            self._logs.offer(world_size(present(model)))

    def _find(self, rank: int) -> tuple[str, str] | str:
        world = self._context.world
        kept = world.jobs.get(self._namespace, self._name)
        if kept is None or kept.model is None:
            return "the job is gone"
        for slot in present(kept.model):
            if slot.rank_offset <= rank < slot.rank_offset + slot.processes:
                break
        else:
            return f"{self._name} has no rank {rank}"
        pod = next((pod for pod in world.pods_of(kept) if pod.name == slot.pod), None)
        if pod is None:
            return f"rank {rank} has no pod now, and logs go with their pods"
        return slot.pod, pod.view.container
