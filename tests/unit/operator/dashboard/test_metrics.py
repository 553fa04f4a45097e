"""Tests of the metrics of a job's program: their table and their curves."""

from __future__ import annotations

from math import isnan

from tests.unit.operator.dashboard.builders import NOW, texts, training

from convoy_crds.engine import Engine
from convoy_crds.trainingjob_status import Metric, Progress
from convoy_operator.dashboard.core import charts, metrics
from convoy_operator.dashboard.core.rows import Tone
from convoy_operator.dashboard.core.series import METRIC_POINTS, METRICS, Curve

ENGINE = Engine.model_validate(
    {
        "metadata": {"name": "gpt"},
        "spec": {
            "image": "i",
            "command": ["c"],
            "metrics": [
                {"name": "held_out_loss", "unit": "nats", "help": "Mean loss over held-out files."},
                {"name": "padding_ratio", "unit": "ratio"},
            ],
        },
    }
)


def progress_of(step: int, *found: Metric) -> Progress:
    return Progress(step=step, metrics=list(found))


def test_metrics_are_shown_with_what_the_engine_declares() -> None:
    progress = {"step": 9, "metrics": [{"name": "held_out_loss", "value": 1234.5678, "step": 1500}]}
    assert texts(metrics.rows(training(progress=progress), ENGINE)) == [
        ["held_out_loss", "1,235", "nats", "1,500", "Mean loss over held-out files."],
        ["padding_ratio", "none yet", "ratio", "-", "-"],
    ]


def test_metrics_of_a_job_without_an_engine_have_a_name_and_a_value() -> None:
    progress = {"step": 9, "metrics": [{"name": "a", "value": 0.0, "step": 0}, {"name": "b", "step": 3}]}
    rows = metrics.rows(training(progress=progress), None)
    assert texts(rows) == [["a", "0", "-", "0", "-"], ["b", "NaN", "-", "3", "-"]]
    assert rows[1].cells[1].tone is Tone.BAD
    assert metrics.rows(training(), None) == []


def test_a_metric_has_a_point_for_each_step_at_which_it_was_reported() -> None:
    curve = Curve(NOW)
    assert curve.add(progress_of(1, Metric(name="a", value=1.0, step=1)), NOW)
    assert curve.add(progress_of(2, Metric(name="a", value=1.0, step=1)), NOW)
    assert curve.add(progress_of(2, Metric(name="a", value=1.5, step=2)), NOW), (
        "measured after the step was told"
    )
    assert not curve.add(progress_of(2, Metric(name="a", value=1.5, step=2)), NOW)
    curve.add(progress_of(3, Metric(name="a", step=3), Metric(name="b", value=4.0, step=3)), NOW)
    assert list(curve.metrics["a"].steps) == [1.0, 2.0, 3.0]
    assert isnan(curve.metrics["a"].values[-1])
    drawn = charts.metric(curve.metrics["a"], "ratio")
    assert (drawn["series"][0]["data"], drawn["yAxis"]["name"]) == ([[1.0, 1.0], [2.0, 1.5]], "ratio")
    assert list(curve.times) == [NOW.timestamp()] * 3


def test_curves_of_metrics_are_bounded_and_keep_both_ends() -> None:
    curve = Curve(NOW)
    for step in range(20 * METRIC_POINTS):
        curve.add(
            progress_of(
                step, *(Metric(name=f"m{n}", value=float(step), step=step) for n in range(METRICS + 3))
            ),
            NOW,
        )
    assert list(curve.metrics) == [f"m{number}" for number in range(METRICS)]
    for one in curve.metrics.values():
        assert METRIC_POINTS // 2 <= len(one.steps) == len(one.values) <= METRIC_POINTS + 1
        assert (one.steps[0], one.steps[-1], one.values[-1]) == (0.0, step, step)
