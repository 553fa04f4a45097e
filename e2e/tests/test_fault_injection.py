"""Tests of faults that an Experiment injects into its own pods, by the agents of real nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convoy_agents.faults.link import HANDLE
from convoy_agents.faults.netlink import RouteSocket
from convoy_agents.faults.pod_processes import containers
from e2e.cluster.cluster import Cluster
from e2e.drive.experiments import Experiments, children
from e2e.drive.faults import kill_processes
from e2e.drive.faults_allowed import faults_allowed
from e2e.drive.job_specs import own_container
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import MACHINE
from e2e.drive.s3_server import checkpoint_store, s3_server

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).parents[1] / "drive" / "programs" / "link.py"
MEGABITS, FAULT_SECONDS = 20.0, 20.0
PORT = 7788
RECEIVE = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    with server.accept()[0] as peer:
        while peer.recv(2**16):
            pass
"""
SEND = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as peer:
    began = time.monotonic()
    peer.sendall(bytes(int(sys.argv[3])))
    peer.shutdown(socket.SHUT_WR)
    peer.recv(1)
    print(time.monotonic() - began)
"""


@pytest.fixture
def allowed(cluster: Cluster) -> Iterator[None]:
    """Allow the agents to inject faults on all nodes, until the test's end."""
    with faults_allowed(cluster):
        yield


def spec(store: str) -> dict[str, Any]:
    """Return an experiment of two equal arms whose pods get a limited link for FAULT_SECONDS of each run."""
    container = own_container(
        "torchrun",
        "--nproc-per-node=1",
        "link.py",
        workingDir="/scripts",
        volumeMounts=[{"name": "scripts", "mountPath": "/scripts", "readOnly": True}],
    )
    volumes = [{"name": "scripts", "configMap": {"name": "link"}}]
    # The name of the job is not known yet, so the pods spread by a label of their own.
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"link": "end"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    template = {
        "metadata": {"labels": {"link": "end"}},
        "spec": {"containers": [container], "volumes": volumes, "affinity": affinity},
    }
    job = {"roles": [{"name": "worker", "replicas": 2, "template": template}]}
    arms = [
        {"name": name, "type": "TrainingJob", "role": role, "template": {"spec": job}}
        for name, role in (("first", "Candidate"), ("second", "Comparator"))
    ]
    return {
        "store": store,
        "blocks": 3,
        "unperturbed": False,
        "runDeadlineSeconds": 300,
        "arms": arms,
        "outcomes": [{"name": "steps", "source": {"status": "result.steps"}, "better": "Higher"}],
        "perturbations": [
            {
                "name": "link",
                "kind": "LinkLimit",
                "magnitudes": [MEGABITS],
                "durationSeconds": FAULT_SECONDS,
                "target": {"role": "worker", "slot": 0},
            }
        ],
        "predictions": [
            {
                "name": "equal",
                "outcome": "steps",
                "candidate": "first",
                "comparator": "second",
                "direction": "NotWorse",
                "margin": 1_000_000,
                "perturbation": "link",
            }
        ],
        # Three blocks are enough for a test of faults, at this level.
        "analysis": {"alpha": 0.5},
    }


def is_limited(pod: Any) -> bool:
    """Return True if the interface of a pod on this machine has the agent's token bucket."""
    pid = containers(MACHINE, pod.metadata.uid)[0].pids()[0]
    route = RouteSocket(Path(f"/proc/{pid}/ns/net"))
    try:
        root = route.root(route.interfaces()["eth0"])
        return root is not None and root.handle == HANDLE
    finally:
        route.close()


def transfer_seconds(sender: Any, receiver: Any, size: int) -> float:
    """Return the seconds to send `size` bytes from one pod's network namespace to another's."""

    def inside(pod: Any, program: str, *arguments: str) -> list[str]:
        pid = containers(MACHINE, pod.metadata.uid)[0].pids()[0]
        return ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", program, *arguments]

    with subprocess.Popen(
        inside(receiver, RECEIVE, str(PORT)), stdout=subprocess.PIPE, text=True
    ) as listening:
        try:
            assert listening.stdout is not None and listening.stdout.readline() == "ready\n"
            command = inside(sender, SEND, receiver.status.pod_ip, str(PORT), str(size))
            return float(
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=90).stdout
            )
        finally:
            listening.kill()


def running_pods(cluster: Cluster, experiments: Experiments, seen: set[str]) -> list[Any]:
    """Return the pods of a run whose first pod is limited, by slot; empty if there is none. Leave out the
    runs in `seen`.
    """
    jobs = Jobs.of(cluster, experiments.namespace)
    for child in children(cluster, experiments.namespace, "link"):
        name = child["metadata"]["name"]
        if name in seen or child.get("status", {}).get("phase") != "Running":
            continue
        pods = jobs.pods(name)
        if len(pods) == 2 and is_limited(pods[0]):
            seen.add(name)
            return pods
    return []


@contextmanager
def link_program(jobs: Jobs) -> Iterator[None]:
    """Provide the program to the pods."""
    body = {"metadata": {"name": "link"}, "data": {"link.py": PROGRAM.read_text()}}
    jobs.core.create_namespaced_config_map(jobs.namespace, body)
    try:
        yield
    finally:
        jobs.core.delete_namespaced_config_map("link", jobs.namespace)


@pytest.mark.usefixtures("allowed")
def test_a_limited_link_slows_a_pod_and_is_gone_after_its_time_or_with_its_agent(
    cluster: Cluster, jobs: Jobs, experiments: Experiments
) -> None:
    seen: set[str] = set()
    size = int(MEGABITS * 1e6 / 8 * 3)
    with s3_server(cluster) as server, checkpoint_store(cluster, server) as store, link_program(jobs):
        experiments.apply("link", spec(store))
        first, second = experiments.wait(
            lambda: running_pods(cluster, experiments, seen), 300, "a run with a limited link"
        )
        began = time.monotonic()
        assert not is_limited(second), "only the pod of the order"
        # Three seconds of the limit's rate. The program of the pod sends too, so more than that is right.
        assert transfer_seconds(first, second, size) > 2.5
        experiments.wait(lambda: not is_limited(first), FAULT_SECONDS + 10, "the limit ends by itself")
        assert time.monotonic() - began > FAULT_SECONDS / 2
        assert transfer_seconds(first, second, size) < 2.0

        first, _ = experiments.wait(
            lambda: running_pods(cluster, experiments, seen), 300, "the next run with a limited link"
        )
        kill_processes(cluster.node(first.spec.node_name), "convoy-agent")
        experiments.wait(lambda: not is_limited(first), 60, "the next agent removes the limit")

        phase = experiments.wait(lambda: experiments.ended("link"), 900, "the end of the experiment")
        status = experiments.status("link")
        assert phase == "Succeeded", (status.get("reason"), status.get("message"))
        achieved = [one["magnitude"] for block in status["blocks"] for one in block.get("achieved", ())]
        assert achieved and all(0.5 * MEGABITS < one < 1.2 * MEGABITS for one in achieved), json.dumps(
            achieved
        )
