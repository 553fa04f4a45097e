"""Tests that a person can read the status of a healthy job on one screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.views import GuardView, NodeView
from convoy_crds.trainingjob_status import TrainingJobStatus

SCREEN = 55
"""Maximum number of lines that kubectl prints before `internal`, which no person needs to read."""
MOST_INTERNAL = 12
MOST_LINES = 88


def healthy() -> ToyCluster:
    """Return a job of three pods with copies of its checkpoints, after an hour without faults."""
    checkpoint = {"interval": "Auto", "tiers": {"local": {}, "peer": {}}}
    roles = [{"name": "worker", "replicas": 3}]
    cluster = ToyCluster(make_job(roles=roles, checkpoint=checkpoint), make_engine()).settle()
    for number, pod in enumerate(cluster.pods.values()):
        assert pod.node
        view = cluster.nodes.get(pod.node, NodeView(pod.node))
        cluster.nodes[pod.node] = replace(view, labels={"topology.kubernetes.io/zone": f"zone-{number}"})
    for step in (100, 200):
        facts = {
            "loss": 2.5,
            "samples_per_second": 12.0,
            "total_steps": 1000,
            "checkpoint_seconds": step / 100,
        }
        cluster.wait(1800).train(step, **facts).commit(step).commit(step, "peer").settle()
    cluster.guard = GuardView(cluster.job.status.incarnation, enough_peers=True)
    return cluster.settle()


def lines(value: Any) -> list[str]:
    """Return the lines that `kubectl get -o yaml` prints for a value."""
    return yaml.safe_dump(value, default_flow_style=False).splitlines()


def test_status_of_a_healthy_job_fits_one_screen() -> None:
    status = healthy().job.status.to_dict()
    shown = lines({"status": status})[1:]
    print("\n".join(shown))
    above = shown.index("  internal:")
    assert {one["type"] for one in status["conditions"]} == {
        "Valid",
        "Scheduled",
        "Running",
        "Checkpointing",
        "StragglerDetected",
    }
    assert status["progress"]["loss"] == 2.5 and status["checkpoint"]["watermarks"].keys() == {
        "local",
        "peer",
    }
    assert above <= SCREEN
    assert len(lines({"internal": status["internal"]})) <= MOST_INTERNAL
    assert len(shown) <= MOST_LINES


def test_status_has_no_empty_field() -> None:
    def check(value: Any, path: str) -> None:
        assert value not in (None, "", [], {}), path
        for name, inner in value.items() if isinstance(value, dict) else ():
            check(inner, f"{path}.{name}")

    check(healthy().job.status.to_dict(), "status")


def test_a_field_that_becomes_empty_is_removed_from_the_stored_status() -> None:
    cluster = healthy()
    before = cluster.job.status.to_dict()
    cluster.lose("job-worker-1").step()
    after = cluster.job.status.to_dict()
    assert not cluster.job.status.formed and "membership" not in after["internal"]["incarnation"]
    assert merge_patch(before, after)["internal"]["incarnation"]["membership"] is None
    assert TrainingJobStatus.model_validate(after) == cluster.job.status


def test_numbers_that_are_zero_stay_except_in_the_bookkeeping() -> None:
    status = TrainingJobStatus().to_dict()
    assert status["restarts"] == {"total": 0, "counted": 0}
    assert "internal" not in status
