"""Tests that the metrics of operator, agents and dashboard follow the conventions of Prometheus, and that
the metrics page lists them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from e2e import metrics_page
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from convoy_agents import metrics as agent
from convoy_controllers.trainingjob import attention
from convoy_controllers.workers.policy import POLICIES
from convoy_crds.reasons.catalogue import Reasons, all_reasons
from convoy_operator.client import KubernetesGateway
from convoy_operator.dashboard.metrics import DashboardMetrics
from convoy_operator.gauges import show_engine_metrics, show_jobs
from convoy_operator.metrics import VERBS, Metrics

REGISTRIES = {
    "operator": Metrics().registry,
    "agent": agent.REGISTRY,
    "dashboard": DashboardMetrics(Metrics()).registry,
}
ALL = pytest.mark.parametrize("registry", REGISTRIES.values(), ids=REGISTRIES)

UNITS = ("seconds", "bytes", "steps")
OTHER_UNITS = ("ms", "millis", "milliseconds", "minutes", "hours", "kb", "mb", "mib", "percent", "ns")
LABELS = {
    "operator": {
        "version", "python", "kind", "cause", "verb", "resource", "code", "type", "outcome", "certificate",
        "phase", "reason", "counted", "result", "state", "verdict", "engine", "name", "pool",
        "source", "notice", "capacity", "backend",
    },
    "agent": {
        "version", "state", "start", "kind", "result", "method", "code", "verdict", "direction", "path",
        "bytes", "outcome",
    },
    "dashboard": {"version", "python", "verb", "resource", "code", "outcome"},
}  # fmt: skip
"""Labels that the metrics of each program may have. Each label has few values, however many jobs and nodes
there are. A label that scrapers add is not allowed: job, instance, pod, container, namespace, node,
service, endpoint.
"""
MAX_SERIES = 64
"""Maximum number of series of one metric. Buckets do not count."""


def families(registry: CollectorRegistry) -> Iterator[Metric]:
    """Yield Convoy's own metrics in the form that a scraper gets."""
    text = generate_latest(registry).decode()
    return (one for one in text_string_to_metric_families(text) if one.name.startswith("convoy_"))


@ALL
def test_metric_names_have_base_units(registry: CollectorRegistry) -> None:
    prefix = "convoy_agent_" if registry is agent.REGISTRY else "convoy_"
    for metric in metrics_page.described(registry):
        [family] = metric.collect()
        words = family.name.split("_")
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", family.name) and family.name.startswith(prefix)
        assert not {*words} & {*OTHER_UNITS, "total", "count", "sum", "bucket"}, family.name
        assert not {*words[:-1]} & {*UNITS}, f"the unit is the end of {family.name}"
        if family.type == "histogram":
            assert words[-1] in UNITS, family.name
        if family.type == "gauge" and "timestamp" in words:
            assert words[-2:] == ["timestamp", "seconds"], family.name


@ALL
def test_every_help_text_is_a_unique_sentence(registry: CollectorRegistry) -> None:
    helps = Counter(family.documentation for family in families(registry))
    for text, times in helps.items():
        assert times == 1, text
        assert re.fullmatch(r"[A-Z1].{10,}\.", text), text
        assert "|" not in text, "it goes into a table"


@pytest.mark.parametrize("name", REGISTRIES)
def test_labels_have_few_values_and_series_exist_from_the_start(name: str) -> None:
    used = set()
    for metric in metrics_page.described(REGISTRIES[name]):
        used |= {*metric._labelnames}
        [family] = metric.collect()
        series = {tuple(sorted((sample.labels | {"le": ""}).items())) for sample in family.samples}
        assert len(series) <= MAX_SERIES, family.name
        # There are too many kinds of requests to the API server to list them in advance, and many never
        # occur. So such a metric may start without series.
        later = family.name == "convoy_api_requests" or {*metric._labelnames} & metrics_page.OPEN
        assert series or later, family.name
    assert used == LABELS[name]


def test_parts_share_only_the_metrics_of_the_same_client() -> None:
    operator, agents, dashboard = ({f.name for f in families(one)} for one in REGISTRIES.values())
    assert operator and agents and not operator & agents
    # The dashboard exports the metrics below, as the operator does. The page's queries select the operator by
    # a series that only the operator has, so the shared names are harmless.
    assert {name for name in dashboard if not name.startswith("convoy_dashboard_")} == {
        "convoy_build_info", "convoy_api_requests", "convoy_api_request_seconds",
        "convoy_api_throttle_seconds", "convoy_watch_relists",
    }  # fmt: skip
    assert "convoy_leader" in operator - dashboard


def test_the_metrics_page_is_complete_and_current() -> None:
    page = metrics_page.PAGE.read_text()
    assert page == metrics_page.rendered(), "run python -m e2e.metrics_page"
    for registry in REGISTRIES.values():
        for family in families(registry):
            assert f"| `{family.name}" in page


def test_a_scrape_of_a_new_process_is_small() -> None:
    size = sum(len(generate_latest(registry)) for registry in REGISTRIES.values())
    assert size < 200_000


def test_metric_verbs_match_the_gateway_methods() -> None:
    assert {*VERBS} == {*KubernetesGateway._METHODS}


def test_reasons_that_need_attention_are_warnings_and_not_handled_faults() -> None:
    catalogue = {one.name: one for one in all_reasons()}
    assert catalogue.keys() >= attention.REASONS
    assert all(catalogue[name].warning for name in attention.REASONS)
    # Convoy restarts the ranks for this reason, but only a person can repair the store, so it is in both
    # lists.
    assert attention.REASONS & POLICIES.keys() == {Reasons.STORE_UNAVAILABLE.name}


def test_jobs_are_counted_by_phase_and_reason() -> None:
    metrics = Metrics()
    troubled = {
        "phase": "Running",
        "reason": "Training",
        "conditions": [
            {"type": "Checkpointing", "reason": "NoPeer"},
            {"type": "Valid", "reason": "Accepted"},
        ],
    }
    over = {"phase": "Failed", "reason": "MaxRestartsExceeded", "conditions": [{"reason": "NoPeer"}]}
    waiting = {"phase": "Pending", "reason": "Unschedulable", "conditions": [{"reason": "Unschedulable"}]}
    value = metrics.registry.get_sample_value
    show_jobs(metrics, [troubled, over, waiting, {}])
    assert value("convoy_jobs", {"phase": "Pending"}) == 2
    assert value("convoy_jobs_need_attention", {"reason": "Unschedulable"}) == 1
    assert value("convoy_jobs_need_attention", {"reason": "NoPeer"}) == 1
    show_jobs(metrics, [over])
    assert value("convoy_jobs", {"phase": "Pending"}) == 0
    assert value("convoy_jobs", {"phase": "Failed"}) == 1
    assert value("convoy_jobs_need_attention", {"reason": "NoPeer"}) == 0


def engine(name: str, *declared: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"metrics": [{"name": one} for one in declared]}}


def running(name: str | None, phase: str = "Running", **values: float | None) -> dict[str, Any]:
    found = [
        {"name": metric, "step": 1, **({} if value is None else {"value": value})}
        for metric, value in values.items()
    ]
    return {
        "spec": {"engine": {"name": name}} if name else {"engine": None},
        "status": {"phase": phase, "progress": {"step": 1, "metrics": found}},
    }


def test_engine_metrics_are_means_over_running_jobs() -> None:
    metrics = Metrics()
    engines = [engine("gpt", "held_out_loss", "ratio"), engine("bare")]
    jobs = [
        running("gpt", held_out_loss=2.0, ratio=0.5, undeclared=1.0),
        running("gpt", held_out_loss=3.0, ratio=None),
        running("gpt", "Succeeded", held_out_loss=9.0),
        running("bare", held_out_loss=1.0),
        running("no-such", held_out_loss=1.0),
        running(None, held_out_loss=1.0),
        {"spec": {}, "status": {"phase": "Running"}},
        {"spec": {}},
    ]

    def series() -> dict[tuple[str, str], float]:
        [family] = metrics.engine_metrics.collect()
        return {(one.labels["engine"], one.labels["name"]): one.value for one in family.samples}

    show_engine_metrics(metrics, engines, jobs)
    found = series()
    assert found.keys() == {("gpt", "held_out_loss"), ("gpt", "ratio")}
    assert found["gpt", "held_out_loss"] == 2.5
    assert math.isnan(found["gpt", "ratio"])
    show_engine_metrics(metrics, engines, jobs[:1])
    assert series() == {("gpt", "held_out_loss"): 2.0, ("gpt", "ratio"): 0.5}
    show_engine_metrics(metrics, engines, [])
    assert series() == {}
