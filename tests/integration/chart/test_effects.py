"""Tests that every value of the chart changes exactly the objects that it should change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Bodies, render
from .test_values import SCHEMA, in_schema, optional

APIS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
OPERATOR, AGENT = "Deployment convoy-operator", "DaemonSet convoy-agent"
HOOKS = {"Job convoy-has-no-jobs-left", "Job convoy-leaves-nothing", "Job convoy-trains-a-job"}
PODS = {OPERATOR, AGENT} | HOOKS
POLICIES = {f"NetworkPolicy convoy-{part}" for part in ("operator", "agent", "hooks", "uninstalled")}
SCRAPED = {"NetworkPolicy convoy-operator", "NetworkPolicy convoy-agent"}
SERVING_MONITOR = {"ServiceMonitor convoy-serving"}
MONITORS = {"ServiceMonitor convoy-operator", "ServiceMonitor convoy-agent", *SERVING_MONITOR}
BOARDS = {"ConfigMap convoy-dashboard-control-plane", "ConfigMap convoy-dashboard-jobs"}
RULE = {"PrometheusRule convoy"}
DASHBOARD = {"Deployment convoy-dashboard"}
# An annotation of the operator's pods contains a digest of the engines, so the operator changes too.
ENGINES = {"ConfigMap convoy-engines", OPERATOR}
ON: Mapping[str, Any] = {
    "networkPolicies": {"enabled": True},
    "monitoring": {
        name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "grafanaDashboards")
    },
}
"""Values that are set beside the tested value. With them every value has an effect, except the values of
the dashboard.
"""
OFF: Mapping[str, Any] = {}
PAGES: Mapping[str, Any] = {"dashboard": {"enabled": True}}
OUTSIDE: Mapping[str, Any] = {
    "dashboard": {"enabled": True, "ingress": {"enabled": True, "host": "jobs.example.com"}}
}
BOOKS: Mapping[str, Any] = {
    "monitoring": {"prometheusRule": {"enabled": True}, "runbooks": "https://x.example"}
}
INGRESS = {"Ingress convoy-dashboard"}
POLICY, BINDING = ({f"ValidatingAdmissionPolicy{binding} convoy-trainingjobs"} for binding in ("", "Binding"))
HELD: Mapping[str, Any] = {"admission": {"trainingJobs": {"enabled": True}}}
SERVING_POLICY, SERVING_BINDING = (
    {f"ValidatingAdmissionPolicy{binding} convoy-servingjobs"} for binding in ("", "Binding")
)
SERVING_HELD: Mapping[str, Any] = {"admission": {"servingJobs": {"enabled": True}}}
EXPERIMENT_POLICY, EXPERIMENT_BINDING = (
    {f"ValidatingAdmissionPolicy{binding} convoy-experiments"} for binding in ("", "Binding")
)
EXPERIMENT_HELD: Mapping[str, Any] = {"admission": {"experiments": {"enabled": True}}}
DIGEST = "sha256:" + "7" * 64
SPREAD = [{"maxSkew": 3, "topologyKey": "rack-x", "whenUnsatisfiable": "DoNotSchedule"}]


@dataclass(frozen=True)
class Effect:
    """The effect of a value that differs from the default."""

    value: Any
    changes: set[str]
    """Objects that change, appear or disappear, written as `Kind name`. A name may end with `*`."""
    text: str = ""
    """Text that each changed object contains when the value is set."""
    beside: Mapping[str, Any] = field(default_factory=lambda: ON)


def merged(below: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of `below` in which `value` is set at `path`, whose parts are separated by dots."""
    name, _, rest = path.partition(".")
    inner = below.get(name)
    return {**below, name: merged(inner or {}, rest, value) if rest else value}


PEER = {"namespaceSelector": {"matchLabels": {"a": "team-x"}}}
TOLERATION = [{"key": "team-x", "operator": "Exists"}]
EFFECTS = {
    "images.registry": Effect("example.com", PODS | ENGINES, "example.com/convoy/"),
    "images.tag": Effect("v7", PODS | ENGINES, ":v7"),
    "images.pullPolicy": Effect("Always", PODS, "imagePullPolicy: Always"),
    "images.pullSecrets": Effect([{"name": "pull-x"}], PODS, "- name: pull-x"),
    "images.operator": Effect("op-x", {OPERATOR} | HOOKS, "op-x:"),
    "images.agent": Effect("agent-x", {AGENT}, "agent-x:"),
    "images.workloads": Effect("work-x", ENGINES),
    "images.serving": Effect("serve-x", ENGINES),
    "images.sklearn": Effect("sklearn-x", ENGINES),
    "images.tools": Effect("tools-x", ENGINES),
    "images.ray": Effect("ray-x", ENGINES),
    "images.digests.operator": Effect(DIGEST, {OPERATOR} | HOOKS, f"convoy/operator@{DIGEST}"),
    "images.digests.agent": Effect(DIGEST, {AGENT}, f"convoy/agent@{DIGEST}"),
    "images.digests.workloads": Effect(DIGEST, ENGINES),
    "images.digests.serving": Effect(DIGEST, ENGINES),
    "images.digests.sklearn": Effect(DIGEST, ENGINES),
    "images.digests.tools": Effect(DIGEST, ENGINES),
    "images.digests.ray": Effect(DIGEST, ENGINES),
    "images.digests.dashboard": Effect(DIGEST, DASHBOARD, f"convoy/dashboard@{DIGEST}", PAGES),
    "crds.enabled": Effect(False, {"CustomResourceDefinition *"}),
    "crds.keep": Effect(False, {"CustomResourceDefinition *"}),
    "engines.enabled": Effect(False, ENGINES),
    "checkpoints.default": Effect("None", {OPERATOR}, "name: CONVOY_CHECKPOINTS_DEFAULT"),
    "guard.defaultPolicy": Effect("Act", {OPERATOR}, "value: Act"),
    "faultInjection.enabled": Effect(True, {AGENT}, "hostPID: true"),
    "operator.replicas": Effect(1, {OPERATOR, "PodDisruptionBudget convoy-operator"}),
    "operator.logLevel": Effect("DEBUG", {OPERATOR}, "value: DEBUG"),
    "operator.qps": Effect(7.5, {OPERATOR}, "value: '7.5'"),
    "operator.burst": Effect(8_000_000, {OPERATOR}, "value: '8000000'"),
    "operator.resources": Effect({"limits": {"memory": "3Gi"}}, {OPERATOR}, "memory: 3Gi"),
    "operator.resources.requests": Effect({"cpu": "3"}, {OPERATOR}, "cpu: '3'"),
    "operator.resources.limits": Effect({"memory": "3Gi"}, {OPERATOR}, "memory: 3Gi"),
    "operator.priceConfigMaps": Effect(["prices-x"], {"Role convoy-operator"}, "- prices-x"),
    "operator.storeSecrets": Effect(["secret-x"], {"Role convoy-operator"}, "- secret-x"),
    "operator.nodeSelector": Effect({"team-x": "mine"}, {OPERATOR} | HOOKS, "team-x: mine"),
    "operator.tolerations": Effect(TOLERATION, {OPERATOR} | HOOKS, "key: team-x"),
    "operator.affinity": Effect({"podAffinity": {"x": []}}, {OPERATOR}, "podAffinity"),
    "operator.topologySpreadConstraints": Effect(SPREAD, {OPERATOR}, "topologyKey: rack-x"),
    "operator.env": Effect({"CONVOY_WORKERS": 4_000_000}, {OPERATOR}, "value: '4000000'"),
    "operator.podDisruptionBudget.enabled": Effect(False, {"PodDisruptionBudget convoy-operator"}),
    "operator.priorityClassName": Effect("prio-x", {OPERATOR}, "priorityClassName: prio-x"),
    "operator.podLabels": Effect({"team-x": "mine"}, {OPERATOR}, "team-x: mine"),
    "operator.podAnnotations": Effect({"team-x": "mine"}, {OPERATOR}, "team-x: mine"),
    "agent.maxUnavailable": Effect(7, {AGENT}, "maxUnavailable: 7"),
    "agent.priorityClassName": Effect("prio-x", {AGENT}, "priorityClassName: prio-x"),
    "agent.podLabels": Effect({"team-x": "mine"}, {AGENT}, "team-x: mine"),
    "agent.podAnnotations": Effect({"team-x": "mine"}, {AGENT}, "team-x: mine"),
    "agent.affinity": Effect({"podAffinity": {"x": []}}, {AGENT}, "podAffinity"),
    "agent.logLevel": Effect("DEBUG", {AGENT}, "value: DEBUG"),
    "agent.checkpointMemoryMiB": Effect(2048, {AGENT}, "memory: 2176Mi"),
    "agent.storeVolumes": Effect(["claim-x"], {AGENT}, "claimName: claim-x"),
    "agent.models.folder": Effect("/disk-x/models", {AGENT}, "path: /disk-x/models"),
    "agent.models.limitGiB": Effect(3, {AGENT}, "value: '3221225472'"),
    "agent.models.reserveGiB": Effect(5, {AGENT}, "value: '5368709120'"),
    "agent.models.reservePercent": Effect(17, {AGENT}, "value: '17'"),
    "agent.kubeletDir": Effect("/var/lib/k-x", {AGENT}, "path: /var/lib/k-x"),
    "agent.resources": Effect({"requests": {"memoryMiB": 256}}, {AGENT}, "memory: 1280Mi"),
    "agent.notices.metadata": Effect(True, {"NetworkPolicy convoy-agent"}, "cidr: 169.254.169.254/32"),
    "agent.notices.fake": Effect("file:///run/convoy/x", {AGENT}, "value: file:///run/convoy/x"),
    "agent.resources.requests": Effect({"cpu": "3"}, {AGENT}, "cpu: '3'"),
    "agent.resources.limits": Effect({"memoryMiB": 1024}, {AGENT}, "memory: 2048Mi"),
    "agent.nodeSelector": Effect({"team-x": "mine"}, {AGENT}, "team-x: mine"),
    "agent.tolerations": Effect(TOLERATION, {AGENT}, "key: team-x"),
    "agent.env": Effect({"CONVOY_COPY_RATE": 7_000_000}, {AGENT}, "value: '7000000'"),
    "networkPolicies.enabled": Effect(True, POLICIES | {OPERATOR}, "", OFF),
    "networkPolicies.metricsFrom": Effect([PEER], SCRAPED, "team-x"),
    "networkPolicies.apiServer.cidrs": Effect(["192.0.2.1/32"], POLICIES, "cidr: 192.0.2.1/32"),
    "networkPolicies.apiServer.ports": Effect([8443], POLICIES, "port: 8443"),
    "networkPolicies.dns.to": Effect([PEER], POLICIES, "team-x"),
    "networkPolicies.dns.ports": Effect([5353], POLICIES, "port: 5353"),
    "networkPolicies.pagesFrom": Effect(
        [PEER], {"NetworkPolicy convoy-dashboard"}, "team-x", {**PAGES, "networkPolicies": {"enabled": True}}
    ),
    "networkPolicies.stores.to": Effect([PEER], {"NetworkPolicy convoy-agent"}, "team-x"),
    "networkPolicies.stores.ports": Effect([9000], {"NetworkPolicy convoy-agent"}, "port: 9000"),
    "admission.trainingJobs.enabled": Effect(True, POLICY | BINDING, "convoy-trainingjobs", OFF),
    "admission.trainingJobs.namespaceSelector": Effect(
        {"matchLabels": {"team-x": "mine"}}, BINDING, "team-x: mine", HELD
    ),
    "admission.trainingJobs.localMemory.required": Effect(True, POLICY, "must be given", HELD),
    "admission.trainingJobs.localMemory.most": Effect("7Gi", POLICY | {OPERATOR}, "7Gi", HELD),
    "admission.servingJobs.enabled": Effect(
        True, SERVING_POLICY | SERVING_BINDING, "convoy-servingjobs", OFF
    ),
    "admission.servingJobs.namespaceSelector": Effect(
        {"matchLabels": {"team-x": "mine"}}, SERVING_BINDING, "team-x: mine", SERVING_HELD
    ),
    "admission.servingJobs.localMemory.required": Effect(True, SERVING_POLICY, "must be given", SERVING_HELD),
    "admission.servingJobs.localMemory.most": Effect("7Gi", SERVING_POLICY, "7Gi", SERVING_HELD),
    "admission.experiments.enabled": Effect(
        True, EXPERIMENT_POLICY | EXPERIMENT_BINDING, "convoy-experiments", OFF
    ),
    "admission.experiments.namespaceSelector": Effect(
        {"matchLabels": {"team-x": "mine"}}, EXPERIMENT_BINDING, "team-x: mine", EXPERIMENT_HELD
    ),
    "rbac.aggregate": Effect(False, {"ClusterRole *"}),
    "monitoring.runbooks": Effect("https://x.example", RULE, "https://x.example/convoy-"),
    "monitoring.runbookSuffix": Effect(".html", RULE, "agents-unavailable.html", BOOKS),
    "monitoring.serviceMonitor.enabled": Effect(True, MONITORS, "endpoints:", OFF),
    "monitoring.serviceMonitor.namespace": Effect("mon", MONITORS, "namespace: mon"),
    "monitoring.serviceMonitor.labels": Effect({"team-x": "mine"}, MONITORS, "team-x: mine"),
    "monitoring.serviceMonitor.interval": Effect("7s", MONITORS, "interval: 7s"),
    "monitoring.serviceMonitor.servingJobs": Effect(False, SERVING_MONITOR),
    "monitoring.prometheusRule.enabled": Effect(True, RULE, "alert: ConvoyLeaderAbsent", OFF),
    "monitoring.prometheusRule.namespace": Effect("mon", RULE, "namespace: mon"),
    "monitoring.prometheusRule.labels": Effect({"team-x": "mine"}, RULE, "team-x: mine"),
    "monitoring.grafanaDashboards.enabled": Effect(True, BOARDS, "grafana_dashboard: '1'", OFF),
    "monitoring.grafanaDashboards.namespace": Effect("mon", BOARDS, "namespace: mon"),
    "monitoring.grafanaDashboards.labels": Effect({"team-x": "mine"}, BOARDS, "team-x: mine"),
    "certificates.mode": Effect(
        "CertManager", {OPERATOR, "Role convoy-operator", "Issuer convoy-ca", "Certificate convoy-ca"}
    ),
    "dashboard.enabled": Effect(
        True,
        DASHBOARD
        | {f"{kind} convoy-dashboard" for kind in ("Service", "ServiceAccount", "ServiceMonitor")}
        | {f"{kind} convoy-dashboard" for kind in ("ClusterRole", "ClusterRoleBinding", "NetworkPolicy")}
        | {"Service convoy-dashboard-metrics"},
    ),
    "dashboard.image": Effect("pages-x", DASHBOARD, "pages-x:", PAGES),
    "dashboard.auth.mode": Effect("None", DASHBOARD, "value: None", PAGES),
    "dashboard.auth.proxyCIDRs": Effect(["192.0.2.1/32"], DASHBOARD, "value: 192.0.2.1/32", PAGES),
    "dashboard.auth.secureCookie": Effect(True, DASHBOARD, "value: 'true'", PAGES),
    "dashboard.ingress.enabled": Effect(
        True, DASHBOARD | INGRESS, "jobs.example.com", merged(OUTSIDE, "dashboard.ingress.enabled", False)
    ),
    "dashboard.ingress.className": Effect("class-x", INGRESS, "ingressClassName: class-x", OUTSIDE),
    "dashboard.service.annotations": Effect(
        {"team-x": "mine"}, {"Service convoy-dashboard"}, "team-x: mine", beside=PAGES
    ),
    "dashboard.ingress.annotations": Effect({"team-x": "mine"}, INGRESS, "team-x: mine", OUTSIDE),
    "dashboard.ingress.host": Effect("x.example", DASHBOARD | INGRESS, "x.example", OUTSIDE),
    "dashboard.ingress.path": Effect("/*", INGRESS, "path: /*", OUTSIDE),
    "dashboard.ingress.tls.mode": Effect("None", DASHBOARD | INGRESS, beside=OUTSIDE),
    "dashboard.ingress.tls.secretName": Effect("cert-x", INGRESS, "secretName: cert-x", OUTSIDE),
    # This value changes no object. It only permits a mode, which test_dashboard.py tests.
    "dashboard.ingress.authenticates": Effect(True, set(), beside=OUTSIDE),
    "dashboard.logs": Effect(False, DASHBOARD | {"ClusterRole convoy-dashboard"}, beside=PAGES),
    "dashboard.logLevel": Effect("DEBUG", DASHBOARD, "value: DEBUG", PAGES),
    "dashboard.resources": Effect({"limits": {"memory": "3Gi"}}, DASHBOARD, "memory: 3Gi", PAGES),
    "dashboard.resources.requests": Effect({"cpu": "3"}, DASHBOARD, "cpu: '3'", PAGES),
    "dashboard.resources.limits": Effect({"memory": "3Gi"}, DASHBOARD, "memory: 3Gi", PAGES),
    "dashboard.nodeSelector": Effect({"team-x": "mine"}, DASHBOARD, "team-x: mine", PAGES),
    "dashboard.tolerations": Effect(TOLERATION, DASHBOARD, "key: team-x", PAGES),
    "dashboard.env": Effect(
        {"CONVOY_DASHBOARD_IDLE_MINUTES": 7_000_000}, DASHBOARD, "value: '7000000'", PAGES
    ),
    "dashboard.priorityClassName": Effect("prio-x", DASHBOARD, "priorityClassName: prio-x", beside=PAGES),
    "dashboard.podLabels": Effect({"team-x": "mine"}, DASHBOARD, "team-x: mine", beside=PAGES),
    "dashboard.podAnnotations": Effect({"team-x": "mine"}, DASHBOARD, "team-x: mine", beside=PAGES),
    "dashboard.affinity": Effect({"podAffinity": {"x": []}}, DASHBOARD, "podAffinity", beside=PAGES),
    "dashboard.topologySpreadConstraints": Effect(SPREAD, DASHBOARD, "topologyKey: rack-x", beside=PAGES),
    "test.engine": Effect("engine-x", {"Job convoy-trains-a-job"}, "- engine-x"),
    "test.params": Effect({"steps": 7}, {"Job convoy-trains-a-job"}, '{"steps":7}'),
    "test.tolerations": Effect(TOLERATION, {"Job convoy-trains-a-job"}, '"key":"team-x"'),
    "test.seconds": Effect(1_000_000, {"Job convoy-trains-a-job"}, "- '1000000'"),
}


def by_name(bodies: Bodies) -> dict[str, str]:
    """Return the text of every object, by kind and name. The Role in another namespace is left out, because
    its name is not unique.
    """
    return {
        f"{body['kind']} {body['metadata']['name']}": yaml.dump(body, Dumper=yaml.CSafeDumper, width=1000)
        for body in bodies
        if body["metadata"].get("namespace") != "kube-node-lease"
    }


def grouped(names: set[str], wanted: set[str]) -> set[str]:
    """Return the names. A name that matches a wanted name with `*` is replaced by that wanted name."""
    stars = {star[:-1]: star for star in wanted if star.endswith("*")}
    return {next((star for start, star in stars.items() if n.startswith(start)), n) for n in names}


def test_every_value_has_a_declared_effect() -> None:
    paths = {path for path, _ in in_schema(SCHEMA) if not optional(path)}
    sections = {path for path in paths if any(other.startswith(path + ".") for other in paths)}
    assert paths - sections <= set(EFFECTS)
    assert set(EFFECTS) <= paths


@pytest.fixture(scope="module")
def before(helm: Path) -> dict[str, dict[str, str]]:
    return {str(values): by_name(render(helm, values=values, apis=APIS)) for values in (ON, OFF, PAGES)}


@pytest.mark.parametrize("path", sorted(EFFECTS))
def test_a_value_changes_only_its_declared_objects(
    helm: Path, before: dict[str, dict[str, str]], path: str
) -> None:
    effect = EFFECTS[path]
    old = before.get(str(effect.beside)) or by_name(render(helm, values=effect.beside, apis=APIS))
    new = by_name(render(helm, values=merged(effect.beside, path, effect.value), apis=APIS))
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    assert grouped(changed, effect.changes) == effect.changes
    assert [name for name in changed & new.keys() if effect.text not in new[name]] == []
