"""The page of one Experiment."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from nicegui import ui

from convoy_controllers.resources import EXPERIMENTS
from convoy_crds.experiment import Experiment
from convoy_operator.dashboard.auth.request_guard import SESSION, location_of
from convoy_operator.dashboard.context import Context
from convoy_operator.dashboard.core import conditions, experiment, experiment_charts, experiments, timeline
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.pages import live
from convoy_operator.dashboard.pages.elements import set_text, text
from convoy_operator.dashboard.pages.one_job import OneJobPage
from convoy_operator.dashboard.pages.parts import FactList
from convoy_operator.dashboard.pages.row_charts import RowCharts


def register(context: Context) -> None:
    """Register the page with NiceGUI."""

    @ui.page("/experiments/{namespace}/{name}", dark=None, response_timeout=live.BUILD_SECONDS)
    async def show_experiment(request: Request, namespace: str, name: str) -> None:
        page = ExperimentPage(context, request.scope[SESSION], namespace, name, location_of(request.scope))
        await live.keep_updated(context, page)


class ExperimentPage(OneJobPage[Experiment]):
    """The page of one Experiment, opened by one user."""

    RESOURCE = EXPERIMENTS
    NOUN = "Experiment"

    def _build(self) -> None:
        self._facts = FactList()
        self._note = text("p", "", "quiet")
        self._verdicts = self._table(
            "Verdicts", "verdicts", experiment.VERDICTS, "The verdicts follow when all blocks have ended."
        )
        self._forest = RowCharts("Effects with confidence intervals")
        self._controls = self._table(
            "Controls", "controls", experiment.CONTROLS, "The controls are checked at the end."
        )
        self._medians = self._table(
            "Medians", "medians", experiment.MEDIANS, "They appear when the experiment has ended."
        )
        self._values = RowCharts("Values of all runs")
        self._failures = self._table("Failed runs", "failures", experiment.FAILURES, "No run has failed.")
        self._runs = self._table("Present runs", "runs", experiment.RUNS, "No run is in progress.")
        self._blocks = self._table("Blocks", "blocks", experiment.BLOCKS, "No block has ended yet.")
        self._tuning = self._table("Tuning", "tuning", experiment.TUNING, "No arm is tuned.")
        self._conditions = self._table(
            "Kubernetes conditions", "conditions", conditions.COLUMNS, "There are none yet."
        )
        self._timeline = self._table("Timeline", "timeline", timeline.COLUMNS, "No events are recorded.")

    def _found(self) -> ParsedObject[Experiment] | None:
        return self._context.cache.experiments.get(self._namespace, self._name)

    def _show_timeline(self, uid: str, model: Experiment, now: datetime) -> None:
        self._timeline.show(timeline.rows(timeline.of_events(self._events.of(uid)), now))

    def _show(self, parsed: ParsedObject[Experiment], model: Experiment, now: datetime) -> None:
        state = experiments.state(model)
        self._show_state(state, experiments.TONES[state], experiments.why(model))
        self._facts.show(experiment.facts(model, now))
        set_text(self._note, experiment.note(model))
        self._verdicts.show(experiment.verdict_rows(model))
        self._forest.show(experiment_charts.forest_charts(model))
        self._controls.empty = experiment.no_controls(model)
        self._controls.show(experiment.control_rows(model))
        self._medians.show(experiment.median_rows(model))
        self._values.show(experiment_charts.value_charts(model))
        self._failures.show(experiment.failure_rows(model))
        self._runs.show(experiment.run_rows(model, now))
        self._blocks.show(experiment.block_rows(model, now))
        self._tuning.show(experiment.tuning_rows(model))
        self._conditions.show(experiment.condition_rows(model, now))
        self._show_timeline(parsed.uid, model, now)
