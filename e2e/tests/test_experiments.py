"""Tests of Experiments on real nodes: simulated arms, jobs as arms, kills on the way, the report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import files
from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import leader
from e2e.drive.experiments import Experiments, children, figures
from e2e.drive.faults import kill_processes
from e2e.drive.jobs import Jobs
from e2e.drive.perturbations import kill_rank
from e2e.drive.s3_server import checkpoint_store, s3_server
from e2e.drive.serving_jobs import CONVOY

EXAMPLES = files.CHECKOUT / "examples" / "experiments"


def simulated(store: str, **changes: Any) -> dict[str, Any]:
    """Return the spec of the simulated example, with short runs and few trials."""
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / "autoscaling-simulated.yaml").read_text())["spec"]
    for arm in spec["arms"]:
        if "simulation" in arm:
            arm["simulation"]["params"]["seconds"] = 900
        if "tuning" in arm:
            arm["tuning"]["trials"] = 5
    return {**spec, "store": store, **changes}


@pytest.mark.full
@pytest.mark.timeout(1500)
def test_kills_on_the_way_change_no_number(
    cluster: Cluster, experiments: Experiments, tmp_path: Path
) -> None:
    """The operator and the analysis are killed. The same plan runs undisturbed on this machine."""
    with s3_server(cluster) as server, checkpoint_store(cluster, server) as store:
        spec = simulated(store, parallelism=4)
        experiments.apply("killed", spec)
        experiments.wait(
            lambda: len(experiments.status("killed").get("blocks", ())) >= 3, 400, "three blocks"
        )
        _, node = leader(cluster)
        kill_processes(cluster.node(node), "convoy-operator")
        experiments.wait(
            lambda: experiments.status("killed").get("phase") == "Analysing", 900, "the analysis"
        )
        _kill_analysis(cluster, experiments, "killed")
        phase = experiments.wait(lambda: experiments.ended("killed"), 240, "the end")
        status = experiments.status("killed")
        assert phase == "Succeeded", (status.get("reason"), status.get("message"))
        assert status["progress"] == "27/27" and not status.get("failedBlocks")

        output = experiments.run("report", "killed", "--output", str(tmp_path / "report"))
        assert "report.html" in output
        assert "killed" in experiments.run("verify", "killed")

    manifest = {"apiVersion": "convoy.dev/v1alpha1", "kind": "Experiment", "metadata": {"name": "killed"}}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({**manifest, "spec": spec}))
    command = [str(CONVOY), "experiment", "try", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "try")]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    undisturbed = json.loads((tmp_path / "try" / "data.json").read_text())
    assert figures(status["blocks"]) == figures(undisturbed["blocks"])
    result, expected = (
        json.loads((tmp_path / folder / "result.json").read_text()) for folder in ("report", "try")
    )
    for part in ("hypotheses", "controls", "levels"):
        assert result[part] == expected[part], part
    assert _untimed(result["tuning"]) == _untimed(expected["tuning"])


def _untimed(tuning: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the tuning without the seconds that it took."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in tuning]


def _kill_analysis(cluster: Cluster, experiments: Experiments, name: str) -> None:
    """Kill the rank of the analysis job as soon as it runs."""
    jobs = Jobs.of(cluster, experiments.namespace)

    def running() -> Any:
        for one in children(cluster, experiments.namespace, name):
            if "-result-" in one["metadata"]["name"] and one.get("status", {}).get("phase") == "Running":
                return jobs.pods(one["metadata"]["name"])[0]
        return None

    pod = experiments.wait(running, 120, "the analysis runs")
    kill_rank(cluster, pod.spec.node_name, pod.metadata.uid, 0)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_sweep_is_a_job_array_in_one_object(cluster: Cluster, experiments: Experiments) -> None:
    with s3_server(cluster) as server, checkpoint_store(cluster, server) as store:
        spec = yaml.safe_load((EXAMPLES / "sweep.yaml").read_text())["spec"]
        experiments.apply("sweep", {**spec, "store": store, "parallelism": 4})
        phase = experiments.wait(lambda: experiments.ended("sweep"), 400, "the end of the sweep")
        status = experiments.status("sweep")
        assert phase == "Succeeded", (status.get("reason"), status.get("message"))
        assert all(block["figures"] for block in status["blocks"])
