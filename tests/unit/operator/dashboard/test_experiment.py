"""Tests of what the dashboard shows of Experiments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page
from starlette.requests import Request
from tests.unit.cli.experiments import ENDED, LAG, VERDICT
from tests.unit.crds.experiments import arm, spec
from tests.unit.operator.dashboard.builders import NOW, ago, condition, raw, texts

from convoy_controllers.resources import Resource
from convoy_crds.experiment import Experiment
from convoy_crds.terms import LABEL_EXPERIMENT
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.auth.request_guard import is_page
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.core import attention, experiment, experiments
from convoy_operator.dashboard.core.experiment_charts import MAX_ROWS, forest_charts, value_charts
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of
from convoy_operator.dashboard.core.rows import Tone
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.pages.experiment import ExperimentPage
from convoy_operator.dashboard.settings import AuthMode, DashboardSettings


def body(changes: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {
        "name": "trial",
        "namespace": "team",
        "uid": "u-trial",
        "resourceVersion": "7",
        "creationTimestamp": ago(hours=1),
    }
    return {"metadata": metadata, "spec": spec(perturbations=LAG, **(changes or {})), "status": status}


def parsed(*args: Any, **status: Any) -> ParsedObject[Experiment]:
    return parser_of(Experiment)(body(*args, **status))


def model(*args: Any, **status: Any) -> Experiment:
    return Experiment.model_validate(body(*args, **status))


def test_an_experiment_in_a_row() -> None:
    row = experiments.row(parsed(**{**ENDED, "percent": 66}), NOW)
    assert [cell.text for cell in row.cells] == [
        "team/trial",
        "Succeeded",
        "4/6",
        "1",
        "1 Supported",
        "60m",
        "VerdictsReady: 1 Supported",
    ]
    assert (row.cells[0].href, row.cells[2].share) == ("/experiments/team/trial", 0.66)


def test_experiments_without_a_status_and_unreadable_ones() -> None:
    assert experiments.state(model()) == "New" and "no operator" in experiments.why(model())
    broken = parser_of(Experiment)({**body(), "spec": {}})
    assert experiments.row(broken, NOW).group == "Unreadable"
    assert experiments.counts([broken, parsed(**ENDED)]) == {"Succeeded": 1, "Unreadable": 1}
    leaving = body(**ENDED)
    leaving["metadata"]["deletionTimestamp"] = ago(minutes=1)
    assert experiments.state(Experiment.model_validate(leaving)) == "Deleting"


def test_every_phase_has_a_tone_and_a_place() -> None:
    for phase in experiments.ExperimentPhase:
        assert experiments.row(parsed(phase=phase.value), NOW).cells[1].tone is experiments.TONES[phase]


def test_the_facts_show_plan_and_result() -> None:
    found = {one.label: one.text for one in experiment.facts(model(**ENDED), NOW)}
    assert found["Plan"].startswith("sha256:ab") and found["Result"].startswith("sha256:cd")
    assert found["Failed blocks"] == "1 (at most 3)"
    assert found["Registered"] == "2026-01-01 12:00:00Z"
    assert experiment.note(model(**ENDED)) == "The whole report: convoy experiment report trial -n team"
    assert "Medians appear at the end" in experiment.note(model(phase="Running"))
    assert "Medians are no result" in experiment.note(model(phase="Failed"))


def test_medians_name_missing_and_censored_values() -> None:
    status = json.loads(json.dumps(ENDED))
    status["blocks"][3]["figures"][1]["censored"] = True
    found = texts(experiment.median_rows(model(**status)))
    assert found == [
        ["unperturbed", "fast", "Candidate", "late", "2.25", "3", "0"],
        ["unperturbed", "hpa", "Comparator", "late", "5.5", "2 of 3", "0"],
        ["lag 60 s", "fast", "Candidate", "late", "4", "1", "0"],
        ["lag 60 s", "hpa", "Comparator", "late", "8", "1", "1"],
    ]
    failed = texts(experiment.median_rows(model(phase="Failed")))
    assert [line[4:6] for line in failed] == [["-", "0"]] * 4
    running = model(**{**ENDED, "phase": "Running"})
    assert (experiment.median_rows(running), value_charts(running)) == ([], [])


def test_blocks_and_failures_are_all_listed() -> None:
    status = json.loads(json.dumps(ENDED))
    status["blocks"][3] |= {
        "achieved": [{"arm": "fast", "magnitude": 61.0}],
        "startTime": ago(minutes=3),
        "completionTime": ago(minutes=1),
    }
    found = texts(experiment.block_rows(model(**status), NOW))
    assert [line[0] for line in found] == ["3", "2", "1", "0"]
    assert found[0] == [
        "3", "lag 60 s", "3", "ok", "fast late 4; hpa late 8", "fast 61", "2 min", "60s ago",
    ]  # fmt: skip
    assert found[1][3:5] == ["failed", "fast late 9"]
    assert texts(experiment.failure_rows(model(**status))) == [
        ["2", "unperturbed", "hpa", "JobFailed", "exit code 1"]
    ]


def test_verdicts_controls_and_tuning() -> None:
    (row,) = experiment.verdict_rows(model(**ENDED))
    assert [cell.text for cell in row.cells] == [
        "p",
        "unperturbed",
        "fast better than hpa in late",
        "Supported",
        "3.75",
        "2 to 5.5",
        "0.03125",
        "1.5",
        "2",
    ]
    assert row.cells[3].tone is Tone.GOOD
    failed = model(controls=[{"name": "A/A", "passed": False, "message": "they differ"}])
    assert texts(experiment.control_rows(failed)) == [["A/A", "failed", "they differ"]]
    assert texts(experiment.tuning_rows(model(**ENDED))) == [
        ["hpa", "20", "0.5", "target=70 (at the edge)", "-"]
    ]


def test_runs_link_to_their_jobs() -> None:
    runs = [
        {"name": "trial-ab-b4-fast-1", "block": 4, "arm": "fast", "attempt": 1, "state": "Running"},
        {"name": "trial-ab-b4-serve-1", "block": 4, "arm": "serve", "attempt": 1, "state": "Pending"},
    ]
    template = {"spec": {"roles": []}}
    served = {"name": "serve", "type": "ServingJob", "role": "Default", "template": template}
    arms = [arm("fast", "Candidate"), arm("hpa", "Comparator"), served]
    found = experiment.run_rows(model({"arms": arms}, runs=runs), NOW)
    assert [row.cells[0].href for row in found] == [
        "/jobs/team/trial-ab-b4-fast-1",
        "/serving/team/trial-ab-b4-serve-1",
    ]


# Charts


def test_the_forest_plot_has_an_interval_for_each_verdict() -> None:
    other = {**VERDICT, "perturbation": "lag", "magnitude": 60.0, "verdict": "Undecided", "low": -1.0}
    silent = {**VERDICT, "effect": None}
    (chart,) = forest_charts(model(**{**ENDED, "verdicts": [VERDICT, other, silent]}))
    assert (chart.title, chart.rows, chart.left_out) == ("Effect on late", 2, 0)
    assert chart.options["yAxis"]["data"] == ["p, unperturbed", "p, lag 60 s"]
    drawn = {(one["name"], one["type"]): one["data"] for one in chart.options["series"]}
    assert drawn == {
        ("Supported", "line"): [[2.0, 0], [5.5, 0], ["-", "-"]],
        ("Supported", "scatter"): [[3.75, 0]],
        ("Undecided", "line"): [[-1.0, 1], [5.5, 1], ["-", "-"]],
        ("Undecided", "scatter"): [[3.75, 1]],
    }
    assert chart.options["series"][0]["markLine"]["data"] == [{"xAxis": 0}]
    assert forest_charts(model(phase="Running")) == []


def test_the_value_chart_shows_every_run() -> None:
    (chart,) = value_charts(model(**ENDED))
    assert chart.options["yAxis"]["data"] == [
        "fast, unperturbed", "hpa, unperturbed", "fast, lag 60 s", "hpa, lag 60 s",
    ]  # fmt: skip
    runs, medians = chart.options["series"]
    assert [point for point in runs["data"] if point[1] == 0] == [[1.25, 0], [2.25, 0], [9.0, 0]]
    assert medians["data"] == [[2.25, 0], [5.5, 1], [4.0, 2], [8.0, 3]]
    assert value_charts(model(phase="Pending")) == []
    json.dumps(chart.options)


def test_a_chart_leaves_out_rows_that_have_no_room() -> None:
    verdicts = [VERDICT] * (MAX_ROWS + 3)
    (chart,) = forest_charts(model(**{**ENDED, "verdicts": verdicts}))
    assert (chart.rows, chart.left_out) == (MAX_ROWS, 3)


# Needs attention


@pytest.mark.parametrize(
    ("status", "what"),
    [
        ({"phase": "Failed"}, ["Experiment failed"]),
        ({"phase": "Invalid"}, ["Experiment invalid"]),
        ({"phase": "Succeeded"}, []),
        ({"phase": "Running", "reason": "Running"}, []),
        ({"phase": "Pending", "reason": "StoreNotReady"}, ["Experiment held up"]),
    ],
)
def test_an_experiment_that_needs_a_person(status: dict[str, Any], what: list[str]) -> None:
    found = list(attention.of_experiments([parsed(**status)]))
    assert [one.what for one in found] == what
    assert all("convoy experiment status trial -n team" in one.advice for one in found)


def test_an_unreadable_experiment_needs_attention() -> None:
    (found,) = attention.of_experiments([parser_of(Experiment)({**body(), "spec": {}})])
    assert found.what == "Experiment unreadable"


@pytest.mark.parametrize(("labels", "count"), [({}, 1), ({LABEL_EXPERIMENT: "trial"}, 0)])
def test_a_failed_run_of_an_experiment_is_no_problem_of_its_own(labels: dict[str, str], count: int) -> None:
    job = raw(phase="Failed", completionTime=ago(minutes=1))
    job["metadata"]["labels"] = labels
    assert len(list(attention.of_job(parser_of(TrainingJob)(job), NOW))) == count


# The page


def test_the_link_of_an_experiment_is_a_page() -> None:
    assert is_page(experiments.row(parsed(), NOW).cells[0].href) and not is_page("/experiments/team")


class User:
    """A user who may list the objects of some kinds."""

    undecided = False

    def __init__(self, *plurals: str) -> None:
        self._plurals = plurals

    async def namespaces(self, present: Iterable[str], resource: Resource) -> frozenset[str]:
        return frozenset(present if resource.plural in self._plurals else ())

    async def nodes(self) -> bool:
        return False


def show(user: User, *found: ParsedObject[Experiment]) -> ExperimentPage:
    cache = DashboardCache(Feed())
    for one in found:
        cache.experiments.upsert(one)
    context: Any = SimpleNamespace(
        cache=cache,
        settings=DashboardSettings(logs=False),
        api_monitor=SimpleNamespace(unavailable_since=None, recovering=[], unwatched={}),
        loading=list,
        session_resolver=SimpleNamespace(mode=AuthMode.NONE),
    )
    session: Any = SimpleNamespace(identity=Identity("ada"), access=user, over=False)
    path = "/experiments/team/trial"
    request = Request({"type": "http", "path": path, "headers": [], "query_string": b""})

    async def play() -> ExperimentPage:
        with Client(page(""), request=request) as client:
            shown = ExperimentPage(context, session, "team", "trial", path)
            shown._events.refresh = lambda uid: None  # type: ignore[method-assign]  # nobody has any
            await shown.check_access()
            shown.show()
        client.delete()
        return shown

    return asyncio.run(play())


def test_the_page_shows_the_experiment_to_those_who_may_list_it() -> None:
    conditions = [condition("Registered", "True", "PlanRegistered")]
    shown = show(User("experiments"), parsed(**{**ENDED, "conditions": conditions}))
    assert shown._state.text == "Succeeded"
    assert len(shown._blocks._rows) == 4 and len(shown._verdicts._rows) == 1
    assert set(shown._forest._known) == {"Effect on late"} and set(shown._values._known) == {"late"}
    assert shown._conditions._rows[0].cells[0].text == "Registered"


def test_the_page_of_a_new_experiment_is_empty() -> None:
    shown = show(User("experiments"), parsed())
    assert shown._state.text == "New" and not shown._blocks._rows and not shown._forest._known


@pytest.mark.parametrize("user", [User("trainingjobs"), User()])
def test_an_experiment_seems_absent_to_all_others(user: User) -> None:
    shown = show(user, parsed(**ENDED))
    assert shown._why.text == "There is no such Experiment, or you may not see it."
    assert show(User("experiments"))._why.text == shown._why.text
