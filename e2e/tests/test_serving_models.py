"""Tests of ServingJobs that load checkpoints from a store, on real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.cluster.cluster import Cluster
from e2e.drive.jobs import Jobs
from e2e.drive.serving_jobs import ServingJobs, apart, complete
from e2e.drive.shared_volumes import STORE, volume_store

PLAIN = {"engine": {"name": "lm"}}


def flip_first_bytes(files: list[Path]) -> None:
    """Change the first byte of each file. A second call restores the files."""
    for path in files:
        with path.open("r+b") as file:
            first = file.read(1)
            file.seek(0)
            file.write(bytes([first[0] ^ 1]))


@pytest.mark.full
def test_a_replica_loads_a_checkpoint_and_a_damaged_one_reaches_no_pod(
    cluster: Cluster, jobs: Jobs, serving: ServingJobs
) -> None:
    """Serve a trained model on one node, damage the store, and add a replica on another node. The new
    replica starts only after the store is repaired; the first one serves all the time.
    """
    with volume_store(cluster) as folder:
        tiers = {"local": {}, "remote": {"store": STORE, "every": "5s"}}
        jobs.create(
            "trained",
            roles=[{"name": "worker", "replicas": 1}],
            checkpoint={"interval": "2s", "tiers": tiers},
        )
        jobs.wait_phase("trained", "Succeeded", 180)
        role = {**apart("served"), **PLAIN}
        model = {"checkpoint": {"job": "trained", "store": STORE}}
        serving.create("served", replicas=1, roles=[role], model=model)
        status = serving.wait_rolled("served", 180)
        assert (status["model"]["job"], status["model"]["step"]) == ("trained", 40)
        url = serving.url("served")
        text = complete(url, max_tokens=8)["choices"][0]["text"]

        chunks = [path for path in folder.rglob("chunks/*") if path.is_file()]
        assert chunks
        flip_first_bytes(chunks)
        serving.patch("served", replicas=2)
        serving.wait_reason("served", "ModelDigestMismatch", 60)
        (ready,) = (one for one in serving.status("served")["conditions"] if one["type"] == "ModelReady")
        assert "served-server-1-0" in ready["message"], ready
        assert complete(url, max_tokens=8)["choices"][0]["text"] == text

        flip_first_bytes(chunks)
        # The agent tries a damaged checkpoint again after a quarter of an hour, but a new pod's at once.
        cluster.kubectl("delete", "pod", "-n", serving.namespace, "served-server-1-0", "--wait=false")
        serving.wait_rolled("served", 120)
        assert complete(url, max_tokens=8)["choices"][0]["text"] == text
        serving.delete("served")
        jobs.delete("trained")
