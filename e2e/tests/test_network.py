"""Tests of the chart's NetworkPolicies: Convoy has the connections it needs, other pods cannot connect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.control_plane import DNS_PORT
from e2e.drive.job_progress import watermark
from e2e.drive.job_specs import SMALL, memory, on_separate_nodes
from e2e.drive.jobs import Jobs, restricted_namespace
from e2e.drive.network_policies import enforced_policies, program
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.serving_jobs import ServingJobs, lm_role
from e2e.install import CHART, NAMESPACE, helm

READERS = "convoy-readers"
READABLE_PORTS = {"operator": (8080,), "agent": (8082,), "dashboard": (8080, 8090)}
"""Ports that serve metrics or pages, by part. The policies may open them to readers."""
INTERNAL_PORTS = {"operator": (8470, 8471, 8081), "agent": (8472,), "dashboard": (8081,)}
"""Ports that only Convoy's own parts may reach, by part. No setting of the chart opens them."""
CONNECT_SCRIPT = """
import json, socket, sys
found = []
for host, port in json.loads(sys.argv[1]):
    try:
        socket.create_connection((host, port), timeout=2).close()
        found.append([host, port])
    except OSError:
        pass
print(json.dumps(found))
"""
LISTENERS_SCRIPT = """
import json
rows = [line.split() for name in ("tcp", "tcp6") for line in open("/proc/net/" + name)]
listeners = [row[1].split(":") for row in rows if row[3] == "0A"]
print(json.dumps(sorted({int(port, 16) for address, port in listeners if not int(address, 16)})))
"""
"""Prints the ports on which a process of the pod listens at all addresses."""
PARTS = ("deployment/convoy-operator", "daemonset/convoy-agent", "deployment/convoy-dashboard")
PROBE_PORT = 12345
"""Port on which the probe listens. No part of Convoy needs to connect to it."""
Endpoints = set[tuple[str, int]]


def endpoints(cluster: Cluster) -> tuple[Endpoints, Endpoints]:
    """Return readable endpoints and internal endpoints of Convoy's pods, each as (address, port)."""
    read: Endpoints = set()
    closed: Endpoints = set()
    for pod in cluster.get("-n", NAMESPACE, "pods")["items"]:
        part = pod["metadata"]["labels"].get("app.kubernetes.io/component", "")
        if part in READABLE_PORTS and pod["status"].get("podIP"):
            address = pod["status"]["podIP"]
            read |= {(address, port) for port in READABLE_PORTS[part]}
            closed |= {(address, port) for port in INTERNAL_PORTS[part]}
    return read, closed


@contextmanager
def probe(cluster: Cluster, namespace: str) -> Iterator[str]:
    """Run a pod that tests connections and listens on PROBE_PORT. Yield its IP address."""
    container = {
        "name": "probe",
        "image": "convoy/torch:dev",
        "command": ["python3", "-m", "http.server", str(PROBE_PORT)],
        "readinessProbe": {"tcpSocket": {"port": PROBE_PORT}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    user = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"containers": [container], "securityContext": user, "terminationGracePeriodSeconds": 0},
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(body))
    try:
        cluster.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/probe", "--timeout=60s")
        yield cluster.get("-n", namespace, "pod", "probe")["status"]["podIP"]
    finally:
        cluster.kubectl("-n", namespace, "delete", "pod", "probe", "--wait=false")


def pod_endpoints(cluster: Cluster, namespace: str, pod: str) -> Endpoints:
    """Return the endpoints at which a pod of a job listens, such as that of the rendezvous."""
    address = cluster.get("-n", namespace, "pod", pod)["status"]["podIP"]
    text = cluster.kubectl("-n", namespace, "exec", pod, "--", "python3", "-c", LISTENERS_SCRIPT)
    return {(address, port) for port in json.loads(text)}


def reachable(cluster: Cluster, namespace: str, wanted: Endpoints, pod: str = "probe") -> Endpoints:
    """Return those of the `wanted` endpoints to which the pod can connect."""
    command = ["python3", "-c", CONNECT_SCRIPT, json.dumps(sorted(wanted))]
    text = cluster.kubectl("-n", namespace, "exec", pod, "--", *command, deadline=120)
    return {(host, port) for host, port in json.loads(text)}


def parts_that_reach(cluster: Cluster, wanted: Endpoints) -> set[str]:
    """Return the parts of Convoy that can connect to all of the `wanted` endpoints."""
    return {part for part in PARTS if reachable(cluster, NAMESPACE, wanted, part) == wanted}


@contextmanager
def policies(cluster: Cluster, store: int) -> Iterator[None]:
    """Enable the release's NetworkPolicies while the block runs. `store` is the port of the object store."""
    readers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": READERS}}}]
    values = {
        "enabled": True,
        "metricsFrom": readers,
        "pagesFrom": readers,
        # The local cluster's DNS server listens on another port than usual.
        "dns": {"ports": [53, DNS_PORT]},
        "stores": {"ports": [store]},
    }
    setting = f"--set-json=networkPolicies={json.dumps(values)}"
    helm(cluster, "upgrade", "convoy", str(CHART), "--reuse-values", setting, "--wait", "--timeout=180s")
    try:
        yield
    finally:
        helm(cluster, "rollback", "convoy", "--wait", "--timeout=180s")


def restart_all_parts(cluster: Cluster) -> None:
    """Replace the pods of all parts, so that no connection predates the policies."""
    for workload in PARTS:
        cluster.kubectl("-n", NAMESPACE, "rollout", "restart", workload)
    for workload in PARTS:
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", workload, "--timeout=180s", deadline=190)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.skipif(program() is None, reason="CONVOY_E2E_KUBE_ROUTER is not set")
def test_convoy_works_with_network_policies_and_others_reach_only_allowed_ports(
    cluster: Cluster, jobs: Jobs
) -> None:
    router = program()
    assert router is not None
    readers = restricted_namespace(cluster, READERS)
    with (
        s3_server(cluster) as found,
        probe(cluster, jobs.namespace) as address,
        probe(cluster, readers),
        enforced_policies(cluster, router),
    ):
        with policies(cluster, int(found.endpoint.rsplit(":", 1)[1])):
            restart_all_parts(cluster)
            with checkpoint_store(cluster, found) as store:
                jobs.create(
                    "behind",
                    engine={"name": "gpt", "params": {**SMALL, "steps": 300}},
                    checkpoint=memory("1s", remote={"store": store, "every": "1s"}),
                    roles=[{"name": "worker", "replicas": 2, "template": on_separate_nodes("behind")}],
                )

                def committed() -> bool:
                    status = jobs.status("behind")
                    return bool(watermark(status, "peer") and watermark(status, "remote"))

                jobs.wait(committed, 120, "checkpoints at both tiers")
                ranks = pod_endpoints(cluster, jobs.namespace, "behind-worker-0")
                assert ranks and reachable(cluster, jobs.namespace, ranks) == set()
                assert reachable(cluster, jobs.namespace, ranks, "behind-worker-1") == ranks
                jobs.wait_phase("behind", "Succeeded", 180)
                read, closed = endpoints(cluster)
                assert reachable(cluster, jobs.namespace, read | closed) == set()
                assert reachable(cluster, readers, read | closed) == read
                assert parts_that_reach(cluster, {(address, PROBE_PORT)}) == set()
                jobs.delete("behind")
        # Without the policies all connections work, which proves that the policies blocked them.
        read, closed = endpoints(cluster)
        jobs.wait(
            lambda: reachable(cluster, jobs.namespace, read | closed) == read | closed,
            60,
            "all endpoints can be reached",
        )
        jobs.wait(
            lambda: parts_that_reach(cluster, {(address, PROBE_PORT)}) == set(PARTS),
            60,
            "all parts can connect",
        )


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.skipif(program() is None, reason="CONVOY_E2E_KUBE_ROUTER is not set")
def test_clients_of_a_servingjob_reach_only_its_port_at_slot_0(cluster: Cluster, namespace: str) -> None:
    router = program()
    assert router is not None
    serving = ServingJobs.of(cluster, namespace)
    with probe(cluster, namespace), enforced_policies(cluster, router):
        with policies(cluster, 443):
            serving.create("served", replicas=1, roles=[lm_role(groupSize=2)])
            serving.wait_rolled("served")
            first, second = (pod.metadata.name for pod in serving.pods("served"))
            ranks = pod_endpoints(cluster, namespace, first) | pod_endpoints(cluster, namespace, second)
            front = {(serving.core.read_namespaced_pod(first, namespace).status.pod_ip, 8080)}
            assert front < ranks
            assert reachable(cluster, namespace, ranks) == front
            assert reachable(cluster, namespace, ranks, second) == ranks
            service = serving.core.read_namespaced_service("served", namespace).spec.cluster_ip
            assert reachable(cluster, namespace, {(service, 8080)}) == {(service, 8080)}
        # Without the policies all connections work, which proves that the policies blocked them.
        serving.wait(lambda: reachable(cluster, namespace, ranks) == ranks, 60, "all ports can be reached")
        serving.delete("served")
