"""Tests of traces of a TrainingJob on real nodes: from its steps through the agents to the store."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.traces.trace import Trace
from convoy_workloads.traces.validate.all_ranks import check_ranks
from convoy_workloads.traces.validate.one_trace import check_trace
from convoy_workloads.traces.wire.reader import read_whole
from e2e.cluster.cluster import Cluster
from e2e.drive.job_specs import ENDLESS, on_separate_nodes
from e2e.drive.jobs import Jobs
from e2e.drive.shared_volumes import STORE, volume_store
from e2e.drive.shell import shell

STEPS = {**ENDLESS, "held_out_every": 100_000}
"""Parameters with which a step has no other communication than that of the gradients."""


def gradient_bytes() -> int:
    """Return the bytes of all gradients of the model."""
    model = GPT(STEPS["context"], STEPS["layers"], STEPS["width"], STEPS["heads"])
    return 4 * sum(one.numel() for one in model.parameters())


def stored(jobs: Jobs, name: str, recording: int, seconds: float = 120) -> dict[str, Any]:
    """Wait until a recording with at least this number is stored, and return `status.trace`. Each attempt of
    a recording has a number of its own.
    """

    def over() -> bool:
        trace = jobs.status(name).get("trace", {})
        assert trace.get("state") != "Failed", trace
        return bool(trace.get("recording", 0) >= recording and trace.get("state") == "Stored")

    jobs.wait(over, seconds, f"recording {recording} of {name} is stored")
    found: dict[str, Any] = jobs.status(name)["trace"]
    return found


def check(trace: dict[str, Any], folder: Path) -> list[Trace]:
    """Check the files of both ranks in a folder, and the figures in the status. Return the traces."""
    found = []
    for rank, file in enumerate(trace["files"]):
        path = folder / Path(file["file"]).name
        assert (file["rank"], file["bytes"]) == (rank, path.stat().st_size)
        assert file["commBytesPerStep"] == gradient_bytes()
        assert 0 <= file["exposedCommunicationRatio"] <= 1
        one = read_whole(path)
        assert (one.rank, len(one.nodes), check_trace(one)) == (rank, file["nodes"], [])
        found.append(one)
    assert check_ranks(found) == []
    assert trace["commBytesPerStep"] == gradient_bytes()
    return found


@pytest.mark.full
def test_ordered_steps_and_steps_of_a_running_job_reach_the_store(
    cluster: Cluster, jobs: Jobs, tmp_path: Path
) -> None:
    """Record steps that the spec names, then steps of the running job. Its ranks are not restarted."""
    role = {"name": "worker", "replicas": 2, "template": on_separate_nodes("traced")}
    with volume_store(cluster) as folder:
        spec = {"store": STORE, "steps": {"first": 3, "count": 2}}
        made = jobs.create("traced", engine={"name": "gpt", "params": STEPS}, roles=[role], trace=spec)
        first = stored(jobs, "traced", 1, 180)
        assert (first["trigger"], first["firstStep"], first["lastStep"]) == ("Request", 3, 4)
        assert (first["recording"], first["attempt"]) == (1, 1)
        home = folder / jobs.namespace / made["metadata"]["uid"] / "traces"
        check(first, home)
        assert sorted(path.name for path in home.iterdir()) == ["trace-1.0.et", "trace-1.1.et"]

        environment = shell(cluster, jobs.namespace, tmp_path)
        out = tmp_path / "out"
        volume = folder.parents[1]  # the store uses the folder `clusters/e2e` of its volume
        for command in (
            ["convoy", "trace", "record", "traced", "--steps", "3"],
            ["convoy", "trace", "fetch", "traced", "--out", str(out), "--folder", str(volume)],
            ["convoy", "trace", "validate", str(out)],
        ):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=240, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        second = stored(jobs, "traced", 2)
        assert second["lastStep"] - second["firstStep"] == 2
        assert second["recording"] == second["attempt"] + 1, "each attempt has a number of its own"
        check(second, out)

        status = jobs.status("traced")
        assert (status["phase"], status["incarnation"], status["restarts"]["total"]) == ("Running", 1, 0)
        assert jobs.condition("traced", "TraceRecorded") == ("True", "TraceStored")
        assert "TraceStored" in jobs.events("traced")
        jobs.delete("traced")
