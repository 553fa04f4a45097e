"""Tests of a real Prometheus with the chart's monitoring: it scrapes all parts and alerts on faults."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster.cluster import Cluster
from e2e.drive import monitoring
from e2e.drive.cluster_state import leader
from e2e.drive.faults import packet_loss
from e2e.drive.job_specs import ENDLESS, memory, one_role, own_container
from e2e.drive.jobs import Jobs
from e2e.drive.monitoring import SECONDS
from e2e.drive.perturbations import kill_rank
from e2e.drive.prometheus import Alert, Prometheus
from e2e.drive.scrape_configs import Body, expressions, selectors
from e2e.install import NAMESPACE

MAY_BE_ABSENT = {
    'convoy_api_requests_total{code=~"0|429|5.."}': "no request to the API server failed",
    "convoy_engine_metric": "no job runs whose Engine declares metrics",
}
"""Series that alerts and panels read but a healthy cluster may lack, each with the reason."""
PARTS = ("operator", "agent", "dashboard")
SESSIONS = "tcp sport { 8470, 8471 }"
"""Match expression of nft for traffic from the hub to an agent."""


@pytest.fixture(scope="module")
def shipped(cluster: Cluster) -> list[Body]:
    return monitoring.shipped(cluster)


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, shipped: list[Body]) -> Iterator[Prometheus]:
    with monitoring.running_prometheus(cluster, shipped) as found:
        yield found


def firing(prometheus: Prometheus, name: str, labels: Mapping[str, str]) -> list[Alert]:
    return [
        alert
        for alert in prometheus.firing()
        if alert.name == name and alert.labels.items() >= labels.items()
    ]


def fires(jobs: Jobs, prometheus: Prometheus, name: str, seconds: float = 30, **labels: str) -> Alert:
    """Wait until exactly one alert with this name and these labels fires, and return it."""
    found: list[Alert] = jobs.wait(lambda: firing(prometheus, name, labels), seconds, f"{name} fires")
    assert len(found) == 1
    assert "error expanding" not in found[0].text and "<no value>" not in found[0].text
    return found[0]


def ends(jobs: Jobs, prometheus: Prometheus, name: str, seconds: float = 60, **labels: str) -> None:
    """Wait until no alert with this name and these labels fires."""
    jobs.wait(lambda: not firing(prometheus, name, labels), seconds, f"{name} ends")


def label_values(text: str) -> set[str]:
    """Return all label values in the text of a metrics endpoint. The text is read directly, because
    Prometheus would add its own labels.
    """
    families = text_string_to_metric_families(text)
    return {value for family in families for one in family.samples for value in one.labels.values()}


def test_every_part_with_metrics_is_scraped(cluster: Cluster, jobs: Jobs, prometheus: Prometheus) -> None:
    wanted = {
        (pod["metadata"]["name"], pod["spec"]["nodeName"])
        for pod in cluster.get("-n", NAMESPACE, "pods")["items"]
        if any(
            port.get("name") == "metrics"
            for container in pod["spec"]["containers"]
            for port in container.get("ports", ())
        )
    }
    assert len(wanted) >= 2 + len(cluster.nodes)

    def scraped() -> dict[tuple[str, str], str]:
        return {
            (found["labels"].get("pod", ""), found["labels"].get("node", "")): found["health"]
            for found in prometheus.targets()
            if found["labels"]["job"] != "prometheus"
        }

    jobs.wait(lambda: scraped() == dict.fromkeys(wanted, "up"), 30, f"all targets are up: {wanted}")


def test_an_alert_for_a_failed_job_fires_until_the_job_is_deleted(
    cluster: Cluster, jobs: Jobs, shipped: list[Body], prometheus: Prometheus
) -> None:
    # The alert compares the number of failed jobs with an earlier number, so Prometheus must have recorded
    # one.
    failed = 'max(convoy_jobs{phase="Failed"} and on (instance) convoy_leader == 1)'
    jobs.wait(
        lambda: prometheus.has(f"last_over_time({failed}[1m:{SECONDS}s])"), 30, "failed jobs are counted"
    )
    ends(jobs, prometheus, "ConvoyJobsFailed")
    jobs.create(
        "unlucky",
        engine={"name": "gpt", "params": ENDLESS},
        checkpoint=memory("1s"),
        recovery={"maxRestarts": 0},
    )
    jobs.wait(lambda: jobs.status("unlucky").get("checkpoint", {}).get("step"), 60, "a checkpoint")
    pod = jobs.pods("unlucky")[1]
    kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 1)
    jobs.wait_phase("unlucky", "Failed", 30)
    fires(jobs, prometheus, "ConvoyJobsFailed")
    # A job has run and failed, so every series that alerts and panels read must exist.
    found = list(expressions(shipped))
    assert len(found) > 60
    read = set().union(*map(selectors, found))
    assert {name for name in read - MAY_BE_ABSENT.keys() if not prometheus.has(name)} == set()
    assert MAY_BE_ABSENT.keys() <= read
    for expression in found:
        prometheus.query("query", query=expression)
    jobs.delete("unlucky")
    ends(jobs, prometheus, "ConvoyJobsFailed")


def test_no_metric_names_a_job_a_pod_a_node_or_a_namespace(
    cluster: Cluster, jobs: Jobs, prometheus: Prometheus
) -> None:
    name = "nobodys-business"
    made = jobs.create(name, engine={"name": "gpt", "params": ENDLESS}, checkpoint=memory("1s"))
    jobs.wait(lambda: jobs.status(name).get("checkpoint", {}).get("step"), 60, "a checkpoint")
    pods = jobs.pods(name)
    kill_rank(cluster, pods[1].spec.node_name, pods[1].metadata.uid, 1)
    jobs.wait(lambda: jobs.status(name).get("restarts", {}).get("total"), 30, "a restart")
    jobs.wait_phase(name, "Running", 60)
    # The job has started, saved, failed and been restored, so metrics about all of these include it.
    private = {name, jobs.namespace, made["metadata"]["uid"], *(pod.metadata.uid for pod in pods)}
    nodes = {node.name for node in cluster.nodes}
    parts = [found for found in prometheus.targets() if found["labels"]["job"] != "prometheus"]
    assert {part["labels"]["job"] for part in parts} == {f"convoy-{part}-metrics" for part in PARTS}
    for part in parts:
        with urllib.request.urlopen(part["scrapeUrl"], timeout=20) as response:
            text = response.read().decode()
        assert "convoy_" in text
        assert {one for one in private if one in text} == set(), part["scrapeUrl"]
        assert nodes.isdisjoint(label_values(text)), part["scrapeUrl"]
    jobs.delete(name)


def test_an_alert_fires_for_a_job_that_waits_for_a_person(jobs: Jobs, prometheus: Prometheus) -> None:
    image = own_container("python", "-c", "pass", image="nowhere.invalid/no:1")
    jobs.create("pictureless", engine=None, roles=one_role(image))
    fires(jobs, prometheus, "ConvoyJobsNeedAttention", reason="ImagePullFailed")
    jobs.delete("pictureless")
    ends(jobs, prometheus, "ConvoyJobsNeedAttention", reason="ImagePullFailed")


@pytest.mark.full
def test_an_alert_with_the_node_fires_for_an_agent_without_hub_responses(
    cluster: Cluster, jobs: Jobs, prometheus: Prometheus
) -> None:
    # An operator's traffic to the agent on its own node does not cross the node's link, so take another node.
    _, beside = leader(cluster)
    node = next(node for node in cluster.nodes if node.name != beside)
    with packet_loss(node, SESSIONS):
        alert = fires(jobs, prometheus, "ConvoyAgentSessionDown", 60, node=node.name)
        assert f"on {node.name} has no session" in alert.text
        assert "agents of 1 nodes" in fires(jobs, prometheus, "ConvoyAgentsSilent").text
    ends(jobs, prometheus, "ConvoyAgentSessionDown", node=node.name)
    ends(jobs, prometheus, "ConvoyAgentsSilent")


@pytest.mark.full
def test_an_alert_fires_for_a_missing_operator(cluster: Cluster, jobs: Jobs, prometheus: Prometheus) -> None:
    replicas = cluster.get("-n", NAMESPACE, "deployment", "convoy-operator")["spec"]["replicas"]

    def scale(count: int) -> None:
        cluster.kubectl("-n", NAMESPACE, "scale", "deployment/convoy-operator", f"--replicas={count}")

    scale(0)
    try:
        fires(jobs, prometheus, "ConvoyLeaderAbsent", 90)
    finally:
        scale(replicas)
        cluster.kubectl(
            "-n", NAMESPACE, "rollout", "status", "deployment/convoy-operator", "--timeout=120s", deadline=130
        )
    ends(jobs, prometheus, "ConvoyLeaderAbsent")


def test_no_rule_evaluation_failed(jobs: Jobs, prometheus: Prometheus) -> None:
    jobs.wait(lambda: prometheus.has("prometheus_rule_evaluations_total > 0"), 30, "rules are evaluated")
    assert [rule for rule in prometheus.rules() if rule["health"] != "ok"] == []
    assert prometheus.value("sum(prometheus_rule_evaluation_failures_total)") == 0
