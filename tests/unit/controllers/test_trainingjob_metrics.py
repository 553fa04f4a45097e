"""Tests of the metrics that a job's program measures itself: which ones the status keeps, and the condition
about the dropped ones.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob import metrics
from convoy_controllers.trainingjob.progress import merge_progress
from convoy_controllers.views import MetricView, RankView, SlotView
from convoy_crds.meta import Condition
from convoy_crds.metric_names import MAX_METRICS, MAX_OWN_METRICS
from convoy_crds.trainingjob_status import Metric

OWN = {
    "engine": None,
    "roles": [
        {
            "name": "worker",
            "replicas": 2,
            "template": {"spec": {"containers": [{"name": "worker", "image": "i", "command": ["train"]}]}},
        }
    ],
}


def declaring(*names: str) -> Any:
    return make_engine(metrics=[{"name": name} for name in names])


def job(*names: str) -> ToyCluster:
    """Return a running job whose Engine declares metrics with these names."""
    return ToyCluster(make_job(), declaring(*names)).settle()


def own() -> ToyCluster:
    """Return a running job without an Engine."""
    return ToyCluster(make_job(**OWN)).settle()


def report(cluster: ToyCluster, step: int, **values: float | None) -> Condition | None:
    """Let rank 0 report these metrics at a step. Return the condition MetricsDropped."""
    found = tuple(MetricView(name, value, step) for name, value in values.items())
    cluster.train(step).rank(0, metrics=found).settle()
    return next((c for c in cluster.job.status.conditions if c.type == "MetricsDropped"), None)


def status(cluster: ToyCluster) -> dict[str, tuple[float | None, int]]:
    progress = cluster.job.status.progress
    assert progress is not None
    return {one.name: (one.value, one.step) for one in progress.metrics}


def test_declared_metric_is_kept_with_its_step() -> None:
    cluster = job("held_out_loss", "padding_ratio")
    assert report(cluster, 5, padding_ratio=0.1, held_out_loss=3.0) is None
    cluster.train(6).settle()
    assert status(cluster) == {"held_out_loss": (3.0, 5), "padding_ratio": (0.1, 5)}
    assert list(status(cluster)) == ["held_out_loss", "padding_ratio"], "in the order of the Engine"


def test_metric_without_a_number_has_no_value() -> None:
    cluster = job("ratio")
    report(cluster, 5, ratio=None)
    assert cluster.job.status.to_dict()["progress"]["metrics"] == [{"name": "ratio", "step": 5}]


def test_metric_of_the_lowest_reporting_rank_counts() -> None:
    cluster = job("rate", "last_stage")
    cluster.rank(1, metrics=(MetricView("rate", 2.0, 5), MetricView("last_stage", 0.25, 5)))
    report(cluster, 5, rate=1.0)
    assert status(cluster) == {"rate": (1.0, 5), "last_stage": (0.25, 5)}


def test_metric_stays_until_the_next_value_or_restart() -> None:
    cluster = job("held_out_loss")
    report(cluster, 40, held_out_loss=3.0)
    report(cluster, 41)
    assert status(cluster) == {"held_out_loss": (3.0, 40)}, "as after a restart of the agent"
    cluster.exit(1, 1).settle()
    assert cluster.job.status.incarnation == 2
    cluster.train(31).settle()
    assert status(cluster) == {}, "the restart went back behind it"
    report(cluster, 35, held_out_loss=3.5)
    assert status(cluster) == {"held_out_loss": (3.5, 35)}


def test_undeclared_metric_is_dropped_and_named_once() -> None:
    cluster = job("held_out_loss")
    found = report(cluster, 5, held_out_loss=3.0, paddingless=1.0, another=2.0)
    assert found is not None
    assert (found.status, found.reason) == ("True", "UndeclaredMetrics")
    assert found.message.startswith(
        "Engine gpt does not declare 2 of the metrics that the ranks report; Convoy drops them: "
        "another, paddingless. "
    )
    assert status(cluster) == {"held_out_loss": (3.0, 5)}
    for step in (6, 7):
        report(cluster, step, held_out_loss=3.0, paddingless=1.0, another=2.0)
    assert cluster.events.count("UndeclaredMetrics") == 1
    assert cluster.job.status.phase == "Running"


def test_condition_ends_when_the_engine_declares_the_metric() -> None:
    cluster = job()
    assert report(cluster, 5, ratio=0.5) is not None
    cluster.engine = declaring("ratio")
    assert report(cluster, 6, ratio=0.5) is None
    assert status(cluster) == {"ratio": (0.5, 6)}
    cluster.engine = declaring()
    assert report(cluster, 7, ratio=0.5) is not None
    assert status(cluster) == {}


def test_metrics_are_kept_while_the_engine_is_missing() -> None:
    names = [f"m{number}" for number in range(MAX_METRICS)]
    cluster = job(*names)
    report(cluster, 5, **dict.fromkeys(names, 1.0))
    cluster.engine = None
    assert report(cluster, 6, **dict.fromkeys([*names[:-1], "other"], 2.0)) is None
    assert list(status(cluster)) == names
    assert status(cluster)["m0"] == (2.0, 6)


def test_job_without_an_engine_keeps_its_own_metrics() -> None:
    cluster = own()
    assert report(cluster, 5, held_out_loss=3.0, ratio=0.5) is None
    assert status(cluster) == {"held_out_loss": (3.0, 5), "ratio": (0.5, 5)}


def test_job_without_an_engine_keeps_the_first_metric_names() -> None:
    cluster = own()
    first = {f"z{number:02}": 1.0 for number in range(MAX_OWN_METRICS)}
    assert report(cluster, 5, **first) is None
    found = report(cluster, 6, a_late_one=1.0, **first)
    assert found is not None
    assert found.reason == "TooManyMetrics"
    assert (
        "report 17 metrics" in found.message
        and "keeps only 16 for a job without an Engine; it drops: a_late_one." in found.message
    )
    assert set(status(cluster)) == set(first)


def test_a_message_names_a_bounded_number_of_metrics() -> None:
    cluster = job()
    found = report(cluster, 5, **{f"m{number:02}": 1.0 for number in range(MAX_METRICS)})
    assert found is not None and "m07 and 56 more" in found.message
    assert len(found.message) < 400


def test_a_value_has_nine_digits_in_the_status() -> None:
    cluster = job("loss_like", "bytes")
    report(cluster, 5, loss_like=1.23456789012, bytes=123456789.0)
    assert status(cluster) == {"loss_like": (1.23456789, 5), "bytes": (123456789.0, 5)}


names = st.sampled_from([f"m{number}" for number in range(40)])
values = st.none() | st.floats(allow_nan=False, allow_infinity=False)
reports = st.dictionaries(names, values, max_size=40)


@given(
    st.lists(st.lists(reports, min_size=1, max_size=3), min_size=1, max_size=4),
    st.none() | st.lists(names, unique=True, max_size=MAX_METRICS),
)
def test_the_status_stays_bounded_and_has_no_name_twice(
    found: list[list[dict[str, float | None]]], allowed: list[str] | None
) -> None:
    stored = None
    for number, ranks in enumerate(found):
        views = tuple(
            RankView(
                rank, "RUNNING", step=number, metrics=tuple(MetricView(n, v, number) for n, v in one.items())
            )
            for rank, one in enumerate(ranks)
        )
        stored = merge_progress([SlotView("u", "n", True, 1, ranks=views)], 1, stored, allowed)
        assert stored is not None
        kept = [one.name for one in stored.metrics]
        assert len(kept) == len(set(kept)) <= (MAX_OWN_METRICS if allowed is None else len(allowed))
        assert allowed is None or set(kept) <= set(allowed)
        fresh = metrics.reported(views)
        for one in stored.metrics:
            assert one.name not in fresh or one.step == number, (
                "what is reported is newer than what is stored"
            )
        if allowed is not None:
            assert set(fresh) & set(allowed) <= set(kept)
        type(stored).model_validate(stored.to_dict())


@pytest.mark.parametrize(
    ("found", "stored", "kept"),
    [
        pytest.param(["a"], [], ["a"], id="the first report"),
        pytest.param(["b", "a"], ["a", "b"], ["a", "b"], id="the order stays"),
        pytest.param([], ["a"], ["a"], id="none is reported yet"),
        pytest.param(
            [f"m{n}" for n in range(16)], ["old"], [f"m{n}" for n in range(16)], id="an old one makes room"
        ),
        pytest.param(
            [f"m{n}" for n in range(15)], ["old"], [*(f"m{n}" for n in range(15)), "old"], id="there is room"
        ),
    ],
)
def test_merge_of_metric_names_of_a_job_without_an_engine(
    found: list[str], stored: list[str], kept: list[str]
) -> None:
    fresh = {name: MetricView(name, 1.0, 2) for name in found}
    before = [Metric(name=name, value=0.0, step=1) for name in stored]
    merged = metrics.merge(fresh, before, None)
    assert [one.name for one in merged] == kept
    assert all(one.step == (2 if one.name in found else 1) for one in merged)
