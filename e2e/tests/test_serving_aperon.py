"""Tests of the engine aperon on real nodes: replicas that end, and another index."""

from __future__ import annotations

import json
import random
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import on_separate_nodes, single_threaded
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import kill_rank
from e2e.drive.serving_jobs import ServingJobs, is_ready, load
from e2e.drive.shared_volumes import STORE, volume_store

DIMENSION = 16
WRITES = 150
"""Acknowledged writes before a replica is killed, and after that."""
ROWS, GROWTH = 2000, 500
"""Records of the first generation of an index, and further ones of the second."""
SECONDS = 180.0


def role(job: str, **params: Any) -> dict[str, Any]:
    """Return a role of replicas on different nodes."""
    engine = {"name": "aperon", "params": {"dimension": DIMENSION, **params}}
    made = single_threaded({"name": "server", "engine": engine})
    pod = {**made["template"]["spec"], **on_separate_nodes(job)["spec"]}
    return {**made, "template": {**made["template"], "spec": pod}}


def post(url: str, what: str, body: dict[str, Any], seconds: float = 10) -> dict[str, Any]:
    """Send a request to the routes of vectors. Raises OSError if there is no complete response."""
    headers = {"Content-Type": "application/json", "Connection": "close"}
    request = urllib.request.Request(f"{url}/v1/vectors/{what}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=seconds) as response:
        found: dict[str, Any] = json.load(response)
    return found


@dataclass
class Writer:
    """A client that writes records one by one, and deletes every fifth of them."""

    url: str
    number: int
    ended: threading.Event = field(default_factory=threading.Event)
    present: dict[str, list[float]] = field(default_factory=dict)
    """The acknowledged vectors by id."""
    deleted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    """Ids whose last write got no response."""

    @property
    def acknowledged(self) -> int:
        """Return the number of acknowledged writes."""
        return len(self.present) + 2 * len(self.deleted)

    def run(self) -> None:
        """Write until `ended` is set."""
        values = random.Random(self.number)
        for count in range(10**9):
            if self.ended.is_set():
                return
            id_ = f"{self.number}-{count}"
            vector = [values.gauss(0, 1) for _ in range(DIMENSION)]
            if not self._send("upsert", {"ids": [id_], "vectors": [vector]}):
                self.unknown.add(id_)
            elif count % 5 != 4:
                self.present[id_] = vector
            elif self._send("delete", {"ids": [id_]}):
                self.deleted.add(id_)
            else:
                self.unknown.add(id_)

    def _send(self, what: str, body: dict[str, Any]) -> bool:
        try:
            post(self.url, what, body)
        except (OSError, ValueError):
            return False
        return True


def addresses(serving: ServingJobs, name: str) -> list[str]:
    """Return the addresses of the job's ready pods."""
    found = []
    for pod in serving.pods(name):
        if is_ready(pod) and pod.metadata.deletion_timestamp is None:
            port = next(
                one.container_port for one in pod.spec.containers[0].ports if one.name == "convoy-http"
            )
            found.append(f"http://{pod.status.pod_ip}:{port}")
    return found


def assert_has(url: str, writer: Writer) -> None:
    """Assert that a replica has what the writer's responses say."""
    ids = sorted(writer.present)
    for at in range(0, len(ids), 100):
        some = ids[at : at + 100]
        records = post(url, "get", {"ids": some, "include_vectors": True})["records"]
        lost = [id_ for id_, one in zip(some, records, strict=True) if one is None]
        assert not lost, f"{url} has lost {lost}"
        for id_, one in zip(some, records, strict=True):
            assert one["vector"] == pytest.approx(writer.present[id_], rel=1e-6), id_
    gone = sorted(writer.deleted)
    records = post(url, "get", {"ids": gone})["records"] if gone else []
    assert records == [None] * len(gone), f"{url} has deleted records: {records}"


@pytest.mark.full
def test_a_replica_killed_in_the_middle_of_writes_loses_nothing_acknowledged(
    cluster: Cluster, serving: ServingJobs
) -> None:
    """Kill the process of one replica, then delete the pod of the other one, while clients write."""
    serving.create("vectors", replicas=2, rollout={"drainSeconds": 5}, roles=[role("vectors")])
    serving.wait_rolled("vectors", SECONDS)
    writers = [Writer(serving.url("vectors"), number) for number in range(3)]
    threads = [threading.Thread(target=one.run, daemon=True) for one in writers]
    for thread in threads:
        thread.start()

    def written(least: int) -> bool:
        return sum(one.acknowledged for one in writers) >= least

    def both(without: set[str]) -> bool:
        pods = {pod.metadata.uid for pod in serving.pods("vectors") if is_ready(pod)}
        return len(pods - without) == 2

    try:
        serving.wait(lambda: written(WRITES), SECONDS, "records are written")
        first, second = serving.pods("vectors")
        before = serving.incarnation("vectors", 0) + serving.incarnation("vectors", 1)
        kill_rank(cluster, first.spec.node_name, first.metadata.uid, 0)
        serving.wait(
            lambda: serving.incarnation("vectors", 0) + serving.incarnation("vectors", 1) > before,
            SECONDS,
            "the killed process is replaced",
        )
        serving.wait(lambda: both(set()), SECONDS, "both replicas are ready again")
        least = sum(one.acknowledged for one in writers) + WRITES
        serving.wait(lambda: written(least), SECONDS, "further records are written")
        serving.core.delete_namespaced_pod(second.metadata.name, serving.namespace, grace_period_seconds=0)
        serving.wait(lambda: both({second.metadata.uid}), SECONDS, "the deleted pod is replaced")
        least = sum(one.acknowledged for one in writers) + WRITES
        serving.wait(lambda: written(least), SECONDS, "further records are written")
    finally:
        for one in writers:
            one.ended.set()
        for thread in threads:
            thread.join(30)

    def exchanged() -> bool:
        found = addresses(serving, "vectors")
        counts = {json.dumps(post(url, "count", {})) for url in found}
        return len(found) == 2 and len(counts) == 1

    serving.wait(exchanged, SECONDS, "the replicas have exchanged all writes")
    for url in addresses(serving, "vectors"):
        for one in writers:
            assert_has(url, one)
    serving.delete("vectors")


@pytest.mark.full
def test_a_newer_index_is_rolled_out_under_load(
    cluster: Cluster, jobs: Jobs, serving: ServingJobs, tmp_path: Path
) -> None:
    """Build an index in a CheckpointStore, serve it, and build it again with more records under load."""
    bodies = tmp_path / "bodies.jsonl"
    values = random.Random(0)
    queries = [[values.gauss(0, 1) for _ in range(DIMENSION)] for _ in range(50)]
    bodies.write_text("".join(json.dumps({"query": one, "k": 5}) + "\n" for one in queries))

    synthetic = {"rows": ROWS, "growth": GROWTH, "dimension": DIMENSION}
    build = {"synthetic": synthetic, "generations": 2, "every_seconds": 60}
    with volume_store(cluster):
        jobs.create(
            "index",
            engine={"name": "aperon-index", "params": build},
            roles=[{"name": "worker", "replicas": 1}],
            checkpoint={"tiers": {"local": {}, "remote": {"store": STORE, "every": "1s"}}},
        )
        model = {"checkpoint": {"job": "index", "store": STORE, "follow": True, "minInterval": "1s"}}
        serving.create(
            "found",
            replicas=2,
            rollout={"drainSeconds": 5},
            roles=[role("found", dimension=0, read_only=True)],
            model=model,
        )
        serving.wait_rolled("found", SECONDS)
        url = serving.url("found")
        assert post(url, "count", {}) == {"count": ROWS}
        with load(url, 20, 600, "--path=/v1/vectors/search", f"--bodies={bodies}") as running:
            serving.wait(
                lambda: serving.status("found")["model"].get("step") == 2,
                SECONDS,
                "the second index is followed",
            )
            serving.wait_rolled("found", SECONDS)
            report = running.report()
        assert report["ok"] == report["scheduled"] > 20, report["causes"]
        assert post(url, "count", {}) == {"count": ROWS + GROWTH}
        serving.delete("found")
        jobs.delete("index")
