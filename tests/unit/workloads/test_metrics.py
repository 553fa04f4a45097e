from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_agents.pods.messages import parse_progress
from convoy_crds.engine import EngineMetric, EngineSpec
from convoy_crds.metric_names import MAX_METRIC_NAME, MAX_METRICS
from convoy_workloads.runtime.metrics import MAX_NAME_LENGTH, MAX_NAMES, MAX_PRINTED, Metrics, number, words
from convoy_workloads.runtime.progress import Meter


class OneElement:
    """Stands in for a tensor with one element, which converts to a float."""

    def __float__(self) -> float:
        return 0.5


class Array:
    """Stands in for a NumPy array with axes. It does not convert to a float, even with one element."""

    def __init__(self, *elements: complex) -> None:
        self._elements = elements

    def __float__(self) -> float:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")

    def item(self) -> complex:
        (only,) = self._elements
        return only


class ManyElements:
    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 3 elements cannot be converted to Scalar")


def test_each_figure_keeps_its_newest_value_and_step() -> None:
    metrics = Metrics()
    metrics.record(1, {"held_out_loss": 4.0, "padding_ratio": OneElement()})
    metrics.record(2, {"padding_ratio": 1})
    assert metrics.message() == {
        "held_out_loss": {"value": 4.0, "step": 1},
        "padding_ratio": {"value": 1.0, "step": 2},
    }


def test_the_step_of_a_rare_figure_is_reported() -> None:
    metrics = Metrics()
    assert metrics.record(1, {"steady": 1.0}), "the first one"
    assert not metrics.record(2, {"steady": 1.0})
    assert metrics.record(3, {"steady": 1.0, "rare": 1.0})
    assert not metrics.record(3, {"rare": 2.0}), "twice in one step"
    assert metrics.record(5, {"rare": 2.0})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_a_non_finite_number_is_sent_as_null(value: Any) -> None:
    metrics = Metrics()
    metrics.record(3, {"ratio": value})
    assert metrics.message() == {"ratio": {"value": None, "step": 3}}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", "''"),
        ("Loss", "'Loss'"),
        ("held-out", "'held-out'"),
        ("1st", "'1st'"),
        ("_ratio", "'_ratio'"),
        ("ratio\n", r"'ratio\\n'"),
        ("é", "'é'"),
        ("a" * (MAX_NAME_LENGTH + 1), "'a{64}'"),
        (3, "3"),
    ],
)
def test_an_invalid_name_is_rejected_with_that_name(name: Any, error: str) -> None:
    metrics = Metrics()
    with pytest.raises(ValueError, match=rf"^metrics\[{error}"):
        metrics.record(1, {"fine": 1.0, name: 1.0})
    assert not metrics.message(), "nothing of such a report counts"


@pytest.mark.parametrize(
    "value", ["1.5", b"1", None, [1.0, 2.0], {}, 1j, ManyElements(), Array(1, 2), Array(1j)]
)
def test_a_value_that_is_no_number_is_rejected_with_its_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^metrics\['ratio'\]: .* is neither a number"):
        Metrics().record(1, {"ratio": value})


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("val/loss", "val_loss"),
        ("rewards/Margins (%)", "rewards_margins"),
        ("eval.grad-norm", "eval_grad_norm"),
        ("_x", "x"),
    ],
)
def test_an_invalid_name_gets_a_hint_with_a_valid_name(name: str, near: str) -> None:
    """Other frameworks use names with slashes, dots and dashes (ray-project/ray#12553, #50443)."""
    with pytest.raises(ValueError, match=rf"begins with a letter; '{near}' would be valid$"):
        Metrics().record(1, {name: 1.0})
    Metrics().record(1, {near: 1.0})


@pytest.mark.parametrize("name", ["9", "", "%", "é", "a" * (MAX_NAME_LENGTH + 1), 3])
def test_a_name_with_an_invalid_first_letter_gets_no_suggestion(name: Any) -> None:
    with pytest.raises(ValueError, match=r"begins with a letter$"):
        Metrics().record(1, {name: 1.0})


def test_an_array_of_one_element_is_a_number() -> None:
    """Such values are common: huggingface/transformers#10632."""
    metrics = Metrics()
    metrics.record(1, {"ratio": Array(0.25)})
    assert metrics.message()["ratio"]["value"] == 0.25
    assert number("loss", Array(0.5)) == 0.5
    with pytest.raises(TypeError, match=r"^loss: 'nan' is neither a number nor a tensor with one element"):
        number("loss", "nan")


def test_a_rank_has_a_bounded_number_of_names() -> None:
    assert (MAX_NAMES, MAX_NAME_LENGTH) == (MAX_METRICS, MAX_METRIC_NAME), "an agent ends a session over more"
    metrics = Metrics()
    metrics.record(1, {f"m{number}": 1.0 for number in range(MAX_NAMES)})
    metrics.record(2, {"m0": 2.0})
    with pytest.raises(ValueError, match=r"^metrics\['one_more'\]: .* at most 64"):
        metrics.record(3, {"m1": 2.0, "one_more": 1.0})
    assert len(metrics.message()) == MAX_NAMES


def test_a_line_for_people_has_a_bounded_number_of_figures() -> None:
    assert words({f"m{number}": 0.5 for number in range(MAX_PRINTED + 2)})[-2:] == ["m7 0.5", "(2 more)"]
    assert words({"rate": 1234567.0, "small": 1e-9}) == ["rate 1.23457e+06", "small 1e-09"]


reports = st.lists(
    st.tuples(st.integers(0, 2**53), st.dictionaries(st.text(max_size=5), st.floats() | st.integers())),
    max_size=6,
)


@given(reports)
def test_metrics_that_the_meter_accepts_pass_every_later_check(
    found: list[tuple[int, dict[str, Any]]],
) -> None:
    meter = Meter()
    for step, values in found:
        try:
            meter.observe(step, 0.0, metrics=values)
        except ValueError:
            continue
    progress = parse_progress(json.loads(json.dumps(meter.message(0), allow_nan=False)))
    assert {one.name for one in progress.metrics} == set(meter.message(0).get("metrics", {}))
    EngineSpec(image="i", command=["c"], metrics=[EngineMetric(name=one.name) for one in progress.metrics])
