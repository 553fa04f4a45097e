"""Tests of alerts, dashboards and scrape settings: promtool accepts them, and they use only metrics that
are exported.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from convoy_agents.metrics import REGISTRY
from convoy_controllers.servingjob import children
from convoy_controllers.servingjob.pods import REPLICAS
from convoy_crds.servingjob import ServingJob
from convoy_operator.metrics import Metrics

from .alerts import CASES, Series
from .conftest import CHART, NAMESPACE, of_kind, one, render

RULES = CHART / "files" / "monitoring" / "rules.yaml"
RUNBOOKS = CHART.parents[1] / "docs" / "runbooks"
DASHBOARDS = sorted((CHART / "files" / "monitoring").glob("*.json"))
PROMETHEUS = ("monitoring.coreos.com/v1",)
SCRAPE_LABELS = {"instance", "job", "namespace", "pod", "node", "le"}
"""Labels that a scrape adds to series."""
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}


def promtool(*arguments: str | Path) -> str:
    if not shutil.which("promtool"):
        pytest.fail("there is no promtool: `make host` installs it")
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exported(registry: CollectorRegistry) -> Iterator[tuple[str, set[str]]]:
    """Yield the name and the own labels of every series of a registry's metrics."""
    ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
    for collector in registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            for end in ends[collector._type]:
                yield collector._name + end, set(collector._labelnames)
        else:
            yield from ((sample.name, set()) for metric in collector.collect() for sample in metric.samples)


def series() -> dict[str, set[str]]:
    return {**dict(exported(Metrics().registry)), **dict(exported(REGISTRY))}


def kebab(alert: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", alert).lower()


def panels() -> Iterator[tuple[str, str, str]]:
    """Yield the dashboard, the title and the query of every panel."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield path.name, panel["title"], target["expr"]


def unnamed(expr: str) -> set[str]:
    """Return the metrics of a query that no program exports, and the labels that its metrics do not have."""
    known = series()
    found = set()
    for name, selector in re.findall(r"\b((?:convoy|process)_\w+)(?:\{([^}]*)\})?", expr):
        if name not in known:
            found.add(name)
            continue
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", selector))
        found |= {f"{name}{{{label}}}" for label in labels - known[name] - SCRAPE_LABELS}
    named = set().union(*(known.get(name, set()) for name in re.findall(r"\bconvoy_\w+", expr)))
    for group in re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expr):
        found |= {label.strip() for label in group.split(",")} - named - SCRAPE_LABELS
    return found


def firing_test(alert: str, given: Series, minutes: int, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in given.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{alert}",alertstate="firing"}}',
                "eval_time": f"{minutes}m",
                "exp_samples": expected,
            }
        ],
    }


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", RULES)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_fires_only_under_its_condition(alert: str, tmp_path: Path) -> None:
    case, severity = CASES[alert], ALERTS[alert]["labels"]["severity"]
    labels = {"alertname": alert, "alertstate": "firing", "severity": severity, **case.labels}
    written = ",".join(f'{name}="{value}"' for name, value in labels.items())
    fires = firing_test(alert, case.fires, case.minutes, [{"labels": f"ALERTS{{{written}}}", "value": 1}])
    quiet = [firing_test(alert, given, case.minutes, []) for given in case.quiet.values()]
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [fires, *quiet]}))
    promtool("test", "rules", tests)
    # If the text used a label that the alert does not have, the text would have a gap.
    used_labels = set(re.findall(r"\$labels\.(\w+)", json.dumps(ALERTS[alert]["annotations"])))
    assert used_labels <= set(labels) | {"node"}  # The ServiceMonitor adds the label `node`.


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_reads_exported_metrics_and_has_a_runbook(alert: str) -> None:
    rule = ALERTS[alert]
    assert unnamed(rule["expr"]) == set()
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    text = (RUNBOOKS / f"{kebab(alert)}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["What it means", "How to look", "What to do"]
    assert "```sh" in text


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_runbook_refers_to_existing_log_messages_and_pages(path: Path) -> None:
    text, root = path.read_text(), RUNBOOKS.parents[1]
    code = "".join(
        file.read_text() for part in ("operator", "agents") for file in (root / part).rglob("*.py")
    )
    for pattern in re.findall(r"\blogs [^|]*\| grep (?:-\w+ )?'([^']+)'", text):
        alternatives = re.sub(
            r"^(.*?)\((.*)\)$", lambda m: "|".join(m[1] + x for x in m[2].split("|")), pattern
        )
        assert [words for words in alternatives.split("|") if words not in code] == []
    assert [page for page in re.findall(r"\]\(([\w-]+\.md)\)", text) if not (RUNBOOKS / page).exists()] == []
    assert [page for page in re.findall(r"\bdocs/[\w-]+\.md", text) if not (root / page).exists()] == []


def test_every_runbook_and_case_belongs_to_an_existing_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("convoy-*.md")} == {kebab(alert) for alert in ALERTS}
    assert set(CASES) == set(ALERTS)


@pytest.mark.parametrize(
    ("expr", "found"),
    [
        ("convoy_leader", set()),
        ("convoy_leaders", {"convoy_leaders"}),
        ("convoy_restarts", {"convoy_restarts"}),
        ('convoy_jobs{phases="Failed"}', {"convoy_jobs{phases}"}),
        ("sum by (cause) (convoy_jobs)", {"cause"}),
        ('sum by (le) (convoy_queue_seconds_bucket{instance="a"})', set()),
    ],
)
def test_a_query_of_a_metric_without_exporter_is_detected(expr: str, found: set[str]) -> None:
    assert unnamed(expr) == found


def test_monitoring_objects_are_disabled_by_default(helm: Path) -> None:
    bodies = render(helm, apis=PROMETHEUS)
    assert not {"ServiceMonitor", "PrometheusRule"} & {body["kind"] for body in bodies}
    assert not [b for b in of_kind(bodies, "ConfigMap") if "dashboard" in b["metadata"]["name"]]


@pytest.mark.parametrize("what", ["serviceMonitor", "prometheusRule"])
def test_a_missing_prometheus_operator_is_reported(helm: Path, what: str) -> None:
    words = rf"monitoring\.{what}\.enabled: this cluster has no monitoring\.coreos\.com/v1"
    with pytest.raises(ValueError, match=words):
        render(helm, f"monitoring.{what}.enabled=true")


def test_the_rules_are_those_of_the_file_with_runbook_addresses(helm: Path, tmp_path: Path) -> None:
    settings = ("monitoring.prometheusRule.enabled=true", "monitoring.runbooks=https://example.com/books/")
    values = {"monitoring": {"prometheusRule": {"namespace": "mon", "labels": {"release": "prom"}}}}
    rule = one(render(helm, *settings, apis=PROMETHEUS, values=values), "PrometheusRule", "convoy")
    assert (rule["metadata"]["namespace"], rule["metadata"]["labels"]["release"]) == ("mon", "prom")
    rendered = tmp_path / "rules.yaml"
    rendered.write_text(yaml.safe_dump(rule["spec"]))
    promtool("check", "rules", rendered)
    found = {one["alert"]: one for group in rule["spec"]["groups"] for one in group["rules"]}
    assert found.keys() == ALERTS.keys()
    for alert, body in found.items():
        url = body["annotations"].pop("runbook_url")
        assert url == f"https://example.com/books/{kebab(alert)}.md"
        assert body == ALERTS[alert]


def test_runbooks_may_be_pages_of_the_site(helm: Path) -> None:
    """The pages that `make docs` builds have another suffix than the files in docs."""
    books = ("monitoring.runbooks=https://example.com/runbooks", "monitoring.runbookSuffix=.html")
    bodies = render(helm, "monitoring.prometheusRule.enabled=true", *books, apis=PROMETHEUS)
    found = [
        body for group in one(bodies, "PrometheusRule", "convoy")["spec"]["groups"] for body in group["rules"]
    ]
    for body in found:
        page = f"runbooks/{kebab(body['alert'])}"
        assert body["annotations"]["runbook_url"] == f"https://example.com/{page}.html"
        assert (RUNBOOKS.parent / f"{page}.md").exists()


def test_alerts_link_only_to_public_pages(helm: Path) -> None:
    rule = one(
        render(helm, "monitoring.prometheusRule.enabled=true", apis=PROMETHEUS), "PrometheusRule", "convoy"
    )
    found = [body["annotations"] for group in rule["spec"]["groups"] for body in group["rules"]]
    assert len(found) == len(ALERTS) and not [one for one in found if "runbook_url" in one]


@pytest.mark.parametrize("part", ["operator", "agent", "dashboard"])
def test_prometheus_finds_the_metrics_of_every_part(helm: Path, part: str) -> None:
    settings = (
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.serviceMonitor.interval=10s",
        "dashboard.enabled=true",
    )
    values = {"monitoring": {"serviceMonitor": {"namespace": "mon", "labels": {"release": "prom"}}}}
    bodies = render(helm, *settings, apis=PROMETHEUS, values=values)
    monitor = one(bodies, "ServiceMonitor", f"convoy-{part}")
    assert (monitor["metadata"]["namespace"], monitor["metadata"]["labels"]["release"]) == ("mon", "prom")
    assert [rule["targetLabel"] for rule in monitor["spec"]["endpoints"][0]["relabelings"]] == ["node"]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["interval"]) == ("metrics", "10s")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (service,) = [b for b in of_kind(bodies, "Service") if wanted <= b["metadata"]["labels"].items()]
    assert service["metadata"]["name"] == f"convoy-{part}-metrics"
    (port,) = service["spec"]["ports"]
    workload = one(bodies, "DaemonSet" if part == "agent" else "Deployment", f"convoy-{part}")
    template = workload["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    named = {p["name"]: p["containerPort"] for p in template["spec"]["containers"][0]["ports"]}
    assert named[port["targetPort"]] == port["port"]
    assert port["name"] == endpoint["port"]


def test_a_disabled_dashboard_is_not_scraped(helm: Path) -> None:
    bodies = render(helm, "monitoring.serviceMonitor.enabled=true", apis=PROMETHEUS)
    names = [body["metadata"]["name"] for body in of_kind(bodies, "ServiceMonitor")]
    assert names == ["convoy-operator", "convoy-agent", "convoy-serving"]


def test_prometheus_finds_the_replicas_of_serving_jobs(helm: Path) -> None:
    monitor = one(
        render(helm, "monitoring.serviceMonitor.enabled=true", apis=PROMETHEUS),
        "ServiceMonitor",
        "convoy-serving",
    )
    job = ServingJob.model_validate(
        {
            "metadata": {"name": "llm", "namespace": "team", "uid": "u"},
            "spec": {"roles": [{"name": "server", "engine": {"name": "lm"}}]},
        }
    )
    service = children.service(job, REPLICAS).manifest
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert monitor["spec"]["namespaceSelector"] == {"any": True}


def test_each_dashboard_is_a_config_map_with_the_label_of_grafana(helm: Path) -> None:
    values = {"monitoring": {"grafanaDashboards": {"namespace": "mon", "labels": {"mine": "yes"}}}}
    bodies = of_kind(render(helm, "monitoring.grafanaDashboards.enabled=true", values=values), "ConfigMap")
    maps = [body for body in bodies if "dashboard" in body["metadata"]["name"]]
    assert [next(iter(body["data"])) for body in maps] == [f"convoy-{path.name}" for path in DASHBOARDS]
    for body, path in zip(maps, DASHBOARDS, strict=True):
        assert body["metadata"]["labels"].items() >= {"mine": "yes", "grafana_dashboard": "1"}.items()
        assert body["metadata"]["namespace"] == "mon"
        (text,) = body["data"].values()
        assert json.loads(text) == json.loads(path.read_text())


def test_promtool_accepts_the_query_of_every_panel(tmp_path: Path) -> None:
    queries = [re.sub(r"\$__(rate_interval|range|interval)", "5m", expr) for *_, expr in panels()]
    assert len(queries) > 20
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(queries)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", file)


@pytest.mark.parametrize(("dashboard", "panel", "expr"), list(panels()))
def test_a_panel_reads_exported_metrics(dashboard: str, panel: str, expr: str) -> None:
    assert unnamed(expr) == set(), f"{dashboard}: {panel}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap_and_each_is_explained(path: Path) -> None:
    occupied: set[tuple[int, int]] = set()
    dashboard = json.loads(path.read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        grid = panel["gridPos"]
        cells = {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
        assert not cells & occupied and grid["x"] + grid["w"] <= 24, panel["title"]
        occupied |= cells
        if panel["type"] != "row":
            assert panel["description"] and panel["datasource"]["uid"] == "${datasource}"
