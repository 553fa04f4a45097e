"""Translates ServiceMonitors and PrometheusRules for a Prometheus without the Prometheus operator.

Only the fields that the chart uses are supported. An unsupported field raises an error: if it were ignored,
a test would pass although the field was never tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from e2e.drive.target_discovery import plain

Body = dict[str, Any]

_SERIES = re.compile(r"\b((?:convoy|process)_\w+)(\{[^}]*\})?")
_GRAFANA = re.compile(r"\$__(?:rate_interval|interval|range)")


def scrapes(monitor: Body, discovery: str) -> list[Body]:
    """Return the `scrape_configs` of a ServiceMonitor.

    Targets also have the labels `namespace`, `pod` and `job`. `discovery` is the address of the server that
    lists the targets of a namespace, or of all. Raises ValueError for unsupported fields.
    """
    spec = _only(monitor["spec"], "namespaceSelector", "selector", "endpoints")
    selected = _only(spec["namespaceSelector"], "matchNames", "any")
    # An empty name stands for all namespaces.
    namespaces = [""] if selected.get("any") else selected["matchNames"]
    found = [{"url": f"{discovery}/{name}", "refresh_interval": "1s"} for name in namespaces]
    labels = _only(spec["selector"], "matchLabels")["matchLabels"]
    return [
        {
            "job_name": f"{monitor['metadata']['name']}/{number}",
            "scrape_interval": endpoint["interval"],
            "http_sd_configs": found,
            "relabel_configs": [
                *(_keep(f"service_label_{plain(name)}", value) for name, value in labels.items()),
                _keep("endpointslice_port_name", endpoint["port"]),
                _label("namespace", "namespace"),
                _label("pod_name", "pod"),
                _label("service_name", "job"),
                *map(_relabeling, endpoint.get("relabelings", ())),
            ],
        }
        for number, endpoint in enumerate(_endpoints(spec))
    ]


def with_short_waits(rule: Body, seconds: int) -> list[Body]:
    """Return a PrometheusRule's groups with every `for` and every subquery resolution set to `seconds`."""
    groups: list[Body] = json.loads(json.dumps(rule["spec"]["groups"]))
    for group in groups:
        for one in group["rules"]:
            one["expr"] = re.sub(r"\[(\w+):\w+\]", rf"[\1:{seconds}s]", one["expr"])
            if "for" in one:
                one["for"] = f"{seconds}s"
    return groups


def expressions(bodies: Iterable[Body]) -> Iterator[str]:
    """Yield every expression of PrometheusRules and Grafana dashboards, with `5m` in place of Grafana's
    variables.
    """
    for body in bodies:
        if body["kind"] == "PrometheusRule":
            yield from (rule["expr"] for group in body["spec"]["groups"] for rule in group["rules"])
        elif body["kind"] == "ConfigMap":
            for text in body["data"].values():
                for panel in json.loads(text)["panels"]:
                    yield from (_GRAFANA.sub("5m", target["expr"]) for target in panel.get("targets", ()))


def selectors(expression: str) -> set[str]:
    """Return the series that an expression reads, each as a metric name with its label selector."""
    return {name + labels for name, labels in _SERIES.findall(expression)}


def _only(body: Body, *known: str) -> Body:
    if unknown := body.keys() - set(known):
        raise ValueError(f"unsupported fields: {sorted(unknown)}")
    return body


def _endpoints(spec: Body) -> list[Body]:
    return [_only(endpoint, "port", "interval", "relabelings") for endpoint in spec["endpoints"]]


def _keep(meta: str, value: str) -> Body:
    return {"action": "keep", "source_labels": [f"__meta_kubernetes_{meta}"], "regex": re.escape(value)}


def _label(meta: str, target: str) -> Body:
    return {"source_labels": [f"__meta_kubernetes_{meta}"], "target_label": target}


def _relabeling(given: Mapping[str, Any]) -> Body:
    found = _only(dict(given), "sourceLabels", "targetLabel")
    return {"source_labels": found["sourceLabels"], "target_label": found["targetLabel"]}
