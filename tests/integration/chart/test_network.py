"""Tests of networkPolicies.enabled, which limits connections, and of the number of replicas that must
remain while nodes are drained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convoy_agents.settings import Settings as AgentSettings
from convoy_crds.terms import LABEL_KIND
from convoy_operator.dashboard.settings import from_environment
from convoy_operator.hub import node_prober
from convoy_operator.settings import Settings

from .conftest import Bodies, of_kind, one, render

ON, WITH_PAGES = "networkPolicies.enabled=true", "dashboard.enabled=true"
HUB = {Settings().enrolment_port, Settings().session_port}
PEER = AgentSettings("n", "::1").peer_port
PAGES = from_environment({})
METRICS = {
    "convoy-operator": Settings().metrics_port,
    "convoy-agent": AgentSettings("n", "::1").metrics_port,
    "convoy-dashboard": PAGES.metrics_port,
}


def selector(component: str) -> dict[str, Any]:
    """Return the selector of one component's pods. It has exactly the labels of this release."""
    return {
        "matchLabels": {
            "app.kubernetes.io/name": "convoy",
            "app.kubernetes.io/instance": "convoy",
            "app.kubernetes.io/component": component,
        }
    }


SERVERS = {"namespaceSelector": {}, "podSelector": {"matchLabels": {LABEL_KIND: "ServingJob"}}}
PEERS = {part: {"podSelector": selector(part)} for part in ("agent", "operator")} | {"servers": SERVERS}
"""Peer of a rule for each component, and for the pods of ServingJobs. Without a namespaceSelector, a peer is
in the namespace of the policy.
"""


def named(peer: dict[str, Any]) -> str:
    """Return the component that a peer selects. If it selects something else, return the peer as text."""
    return next((part for part, whole in PEERS.items() if peer == whole), str(peer))


def pairs(rules: list[dict[str, Any]], side: str) -> set[tuple[str, int]]:
    """Return a pair for every rule: the component or `any`, and the port."""
    found = set()
    for rule in rules:
        assert rule.keys() <= {side, "ports"}
        # A rule without peers allows connections of all peers.
        peers = [named(peer) for peer in rule.get(side, [])] or ["any"]
        # A rule without ports allows all ports, here written as 0.
        found |= {(peer, port["port"]) for peer in peers for port in rule.get("ports", [{"port": 0}])}
    return found


def policy(bodies: Bodies, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(bodies, "NetworkPolicy", name)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    return spec


COMMON = {("any", 53), ("any", 443), ("any", 6443)}


def test_network_policies_are_disabled_by_default(helm: Path) -> None:
    assert of_kind(render(helm), "NetworkPolicy") == []
    names = [body["metadata"]["name"] for body in of_kind(render(helm, ON), "NetworkPolicy")]
    assert names == ["convoy-operator", "convoy-agent", "convoy-hooks", "convoy-uninstalled"]
    names = [body["metadata"]["name"] for body in of_kind(render(helm, ON, WITH_PAGES), "NetworkPolicy")]
    assert "convoy-dashboard" in names


@pytest.mark.parametrize(
    ("name", "ingress", "egress"),
    [
        (
            "convoy-operator",
            {("agent", port) for port in HUB},
            COMMON | {("any", node_prober.PORT), ("agent", PEER)},
        ),
        (
            "convoy-agent",
            {("agent", PEER), ("operator", PEER)},
            COMMON | {("operator", port) for port in HUB} | {("agent", PEER), ("servers", 0)},
        ),
        ("convoy-dashboard", {("any", PAGES.port)}, COMMON),
        ("convoy-hooks", set(), COMMON),
        ("convoy-uninstalled", set(), COMMON),
    ],
)
def test_each_part_has_the_expected_connections(
    helm: Path, name: str, ingress: set[tuple[str, int]], egress: set[tuple[str, int]]
) -> None:
    spec = policy(render(helm, ON, WITH_PAGES), name)
    assert pairs(spec.get("ingress", []), "from") == ingress
    assert pairs(spec["egress"], "to") == egress


def test_each_policy_selects_only_the_pods_of_its_part(helm: Path) -> None:
    bodies = render(helm, ON, WITH_PAGES)
    for name in METRICS:
        kind = "DaemonSet" if name == "convoy-agent" else "Deployment"
        labels = one(bodies, kind, name)["spec"]["template"]["metadata"]["labels"]
        part = name.removeprefix("convoy-")
        assert policy(bodies, name)["podSelector"] == selector(part)
        assert selector(part)["matchLabels"].items() <= labels.items()
    hooks = policy(bodies, "convoy-hooks")["podSelector"]
    ours = {"app.kubernetes.io/name": "convoy", "app.kubernetes.io/instance": "convoy"}
    parts = {"key": "app.kubernetes.io/component", "operator": "In", "values": ["uninstall", "test"]}
    assert hooks == {"matchLabels": ours, "matchExpressions": [parts]}
    for body in of_kind(bodies, "Job"):
        labels = body["spec"]["template"]["metadata"]["labels"]
        assert ours.items() <= labels.items()
        assert labels["app.kubernetes.io/component"] in parts["values"]


def test_a_post_delete_hook_has_a_policy_of_its_own(helm: Path) -> None:
    bodies = render(helm, ON)
    job = one(bodies, "Job", "convoy-leaves-nothing")["metadata"]["annotations"]
    own = one(bodies, "NetworkPolicy", "convoy-uninstalled")["metadata"]["annotations"]
    for name in ("helm.sh/hook", "helm.sh/hook-delete-policy"):
        assert own[name] == job[name]
    weights = [int(found.get("helm.sh/hook-weight", 0)) for found in (own, job)]
    assert weights[0] < weights[1], "it is there first"
    assert policy(bodies, "convoy-uninstalled") == policy(bodies, "convoy-hooks")
    assert "annotations" not in one(bodies, "NetworkPolicy", "convoy-hooks")["metadata"]


def test_only_peers_named_in_the_values_read_metrics(helm: Path) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    bodies = render(helm, ON, WITH_PAGES, values={"networkPolicies": {"metricsFrom": [peer]}})
    for name, port in METRICS.items():
        rule = policy(bodies, name)["ingress"][-1]
        assert rule == {"from": [peer], "ports": [{"protocol": "TCP", "port": port}]}


def test_an_ingress_controller_reaches_pages_unless_only_others_are_named(helm: Path) -> None:
    outside = ("dashboard.ingress.enabled=true", "dashboard.ingress.host=jobs.example.com")
    assert policy(render(helm, ON, WITH_PAGES, *outside), "convoy-dashboard")["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": PAGES.port}]}
    ]
    controller = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    bodies = render(helm, ON, WITH_PAGES, *outside, values={"networkPolicies": {"pagesFrom": [controller]}})
    (rule,) = policy(bodies, "convoy-dashboard")["ingress"]
    assert rule == {"from": [controller], "ports": [{"protocol": "TCP", "port": PAGES.port}]}
    # Ingress controllers connect to the pods, so the policy must allow the port to which the Service's named
    # port refers.
    backend = one(bodies, "Ingress", "convoy-dashboard")["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    (port,) = one(bodies, "Service", backend["service"]["name"])["spec"]["ports"]
    (container,) = one(bodies, "Deployment", "convoy-dashboard")["spec"]["template"]["spec"]["containers"]
    ports = {found["name"]: found["containerPort"] for found in container["ports"]}
    assert port["name"] == backend["service"]["port"]["name"]
    assert ports[port["targetPort"]] == PAGES.port


def test_addresses_of_the_api_server_dns_and_stores_can_be_configured(helm: Path) -> None:
    block, dns, store = "10.0.0.1/32", {"namespaceSelector": {}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}
    values = {
        "apiServer": {"cidrs": [block], "ports": [8443]},
        "dns": {"to": [dns], "ports": [53, 5353]},
        "stores": {"to": [store], "ports": [9000, 9001]},
    }
    egress = policy(render(helm, ON, values={"networkPolicies": values}), "convoy-agent")["egress"]
    assert egress[0]["to"] == [dns]
    assert [(port["protocol"], port["port"]) for port in egress[0]["ports"]] == [
        ("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353),
    ]  # fmt: skip
    assert egress[1] == {"to": [{"ipBlock": {"cidr": block}}], "ports": [{"protocol": "TCP", "port": 8443}]}
    assert egress[-1]["to"] == [store]
    assert [port["port"] for port in egress[-1]["ports"]] == [9000, 9001]


@pytest.mark.parametrize(
    ("settings", "there"),
    [
        ((), True),
        (("operator.replicas=3",), True),
        (("operator.replicas=1",), False),
        (("operator.podDisruptionBudget.enabled=false",), False),
    ],
)
def test_a_disruption_budget_keeps_one_of_several_replicas(
    helm: Path, settings: tuple[str, ...], there: bool
) -> None:
    bodies = render(helm, *settings)
    budgets = of_kind(bodies, "PodDisruptionBudget")
    assert bool(budgets) is there
    if there:
        selected = budgets[0]["spec"]["selector"]["matchLabels"]
        labels = one(bodies, "Deployment", "convoy-operator")["spec"]["template"]["metadata"]["labels"]
        assert budgets[0]["spec"]["minAvailable"] == 1
        assert selected.items() <= labels.items()
