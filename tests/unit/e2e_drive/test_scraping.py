"""Tests of ServiceMonitors and PrometheusRules as translated for a Prometheus without the Prometheus
operator.
"""

from __future__ import annotations

from typing import Any

import pytest
from e2e.drive.scrape_configs import expressions, scrapes, selectors, with_short_waits
from e2e.drive.target_discovery import targets


def monitor(spec: dict[str, Any] | None = None, **endpoint: Any) -> dict[str, Any]:
    described = {
        "namespaceSelector": {"matchNames": ["there"]},
        "selector": {"matchLabels": {"app.kubernetes.io/name": "con-voy"}},
        "endpoints": [{"port": "metrics", "interval": "7s", **endpoint}],
        **(spec or {}),
    }
    return {"metadata": {"name": "m"}, "spec": described}


def test_a_monitor_picks_services_by_label_and_ports_by_name() -> None:
    relabelings = [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}]
    [config] = scrapes(monitor(relabelings=relabelings), "http://targets")
    assert (config["job_name"], config["scrape_interval"]) == ("m/0", "7s")
    assert [found["url"] for found in config["http_sd_configs"]] == ["http://targets/there"]
    kept = [one for one in config["relabel_configs"] if one.get("action") == "keep"]
    assert [(*one["source_labels"], one["regex"]) for one in kept] == [
        ("__meta_kubernetes_service_label_app_kubernetes_io_name", r"con\-voy"),
        ("__meta_kubernetes_endpointslice_port_name", "metrics"),
    ]
    assert config["relabel_configs"][-1] == {
        "source_labels": ["__meta_kubernetes_pod_node_name"],
        "target_label": "node",
    }


def test_a_monitor_may_select_all_namespaces() -> None:
    [config] = scrapes(monitor({"namespaceSelector": {"any": True}}), "http://targets")
    assert [found["url"] for found in config["http_sd_configs"]] == ["http://targets/"]


@pytest.mark.parametrize(
    "given",
    [
        monitor(path="/other"),
        monitor(relabelings=[{"action": "drop", "sourceLabels": ["a"]}]),
        monitor({"selector": {"matchExpressions": []}}),
        monitor({"jobLabel": "app"}),
    ],
    ids=["path", "action", "expressions", "job"],
)
def test_unsupported_fields_of_a_monitor_are_an_error(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="unsupported fields"):
        scrapes(given, "http://targets")


def test_alert_rules_get_short_waits_and_subquery_steps() -> None:
    rules = [
        {"alert": "Slow", "expr": "a > min_over_time(sum(a)[1h:1m])", "for": "30m"},
        {"alert": "AtOnce", "expr": "rate(a[5m]) > 0"},
    ]
    body = {"kind": "PrometheusRule", "spec": {"groups": [{"name": "g", "rules": rules}]}}
    [group] = with_short_waits(body, 3)
    assert [(rule["expr"], rule.get("for")) for rule in group["rules"]] == [
        ("a > min_over_time(sum(a)[1h:3s])", "3s"),
        ("rate(a[5m]) > 0", None),
    ]
    assert rules[0]["for"] == "30m"
    assert list(expressions([body])) == [rule["expr"] for rule in rules]


def test_series_selectors_of_an_expression_are_found() -> None:
    expression = 'sum by (le) (rate(convoy_a_bucket{kind="b"}[5m])) > on (instance) process_c and up'
    assert selectors(expression) == {'convoy_a_bucket{kind="b"}', "process_c"}


def test_each_port_of_each_endpoint_is_a_target() -> None:
    labels = {"app.kubernetes.io/name": "convoy", "kubernetes.io/service-name": "agents"}
    listed = {
        "metadata": {"name": "agents-x", "namespace": "there", "labels": labels},
        "endpoints": [
            {"addresses": [f"10.0.0.{number}"], "nodeName": f"n{number}", "targetRef": {"name": f"p{number}"}}
            for number in range(2)
        ],
        "ports": [{"name": "metrics", "port": 80}, {"name": "other", "port": 81}],
    }
    found = list(targets(listed))
    assert [one["targets"] for one in found] == [
        ["10.0.0.0:80"], ["10.0.0.0:81"], ["10.0.0.1:80"], ["10.0.0.1:81"]
    ]  # fmt: skip
    assert found[2]["labels"] == {
        "__meta_kubernetes_namespace": "there",
        "__meta_kubernetes_service_name": "agents",
        "__meta_kubernetes_service_label_app_kubernetes_io_name": "convoy",
        "__meta_kubernetes_service_label_kubernetes_io_service_name": "agents",
        "__meta_kubernetes_endpointslice_port_name": "metrics",
        "__meta_kubernetes_pod_name": "p1",
        "__meta_kubernetes_pod_node_name": "n1",
    }


@pytest.mark.parametrize("lists", [{"endpoints": None, "ports": None}, {}])
def test_a_service_without_endpoints_has_no_targets(lists: dict[str, Any]) -> None:
    labels = {"kubernetes.io/service-name": "agents"}
    empty = {"metadata": {"name": "x", "namespace": "there", "labels": labels}, **lists}
    assert list(targets(empty)) == []
