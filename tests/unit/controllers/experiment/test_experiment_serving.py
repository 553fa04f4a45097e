"""Tests of an Experiment's arms that serve, and of their loads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from convoy_crds.experiment_schedule import schedule

from .labs import Lab

SERVER = {"replicas": 1, "roles": [{"name": "server", "engine": {"name": "gpt"}}], "service": {"port": 9000}}
P99 = {"name": "p99", "source": {"load": "p99Ms"}, "better": "Lower"}
PREDICTION = {"name": "p", "outcome": "p99", "candidate": "fast", "comparator": "slow", "direction": "Better"}


def serving(**more: Any) -> Lab:
    """Return an experiment with two arms that serve, whose first run has started."""
    arms = [
        {"name": name, "type": "ServingJob", "role": role, "template": {"spec": SERVER}, "load": {"rate": 5}}
        for name, role in (("fast", "Candidate"), ("slow", "Comparator"))
    ]
    lab = Lab(**{"arms": arms, "outcomes": [P99], "predictions": [PREDICTION], **more})
    lab.register()
    return lab


def condition(lab: Lab, name: str, kind: str, status: str, message: str = "") -> None:
    """Set a condition of a job."""
    found = [{"type": kind, "status": status, "message": message}]
    lab.jobs[name] = replace(lab.jobs[name], status={"conditions": found})
    lab.settle()


def test_a_load_starts_once_the_server_is_available_and_ends_the_run() -> None:
    lab = serving()
    server = lab.named("-b0-")
    assert lab.manifests[server]["kind"] == "ServingJob"
    assert lab.manifests[server]["spec"] == SERVER
    condition(lab, server, "Available", "True")
    load = f"{server}-load"
    params = lab.params(load)
    seed = schedule(lab.experiment.spec)[0].seed
    assert params == {"rate": 5, "seed": seed, "url": f"http://{server}.default.svc:9000"}
    lab.end(load, {"p99Ms": 12.5})
    lab.settle()
    assert {server, load}.isdisjoint(lab.jobs)
    (record,) = [one for one in lab.status.runs if one.ended] or [None]
    row = record or lab.status.blocks[0]
    assert [figure.value for figure in row.figures] == [12.5]
    assert len(lab.active) == 1


def test_a_shifted_load_is_a_parameter_of_the_load() -> None:
    shift = {"name": "shift", "kind": "WorkloadShift", "magnitudes": [2], "startSeconds": 3}
    lab = serving(
        perturbations=[shift], unperturbed=False, predictions=[{**PREDICTION, "perturbation": "shift"}]
    )
    server = lab.named("-b0-")
    condition(lab, server, "Available", "True")
    assert lab.params(f"{server}-load")["perturbation"] == {
        "kind": "WorkloadShift",
        "magnitude": 2.0,
        "start": 3.0,
    }


def test_a_lost_load_voids_the_run() -> None:
    lab = serving()
    server = lab.named("-b0-")
    condition(lab, server, "Available", "True")
    lab.settle()
    lab.vanish(f"{server}-load")
    lab.settle()
    assert f"{server}-load" not in lab.created[lab.created.index(f"{server}-load") + 1 :]
    failures = [one.failure for one in lab.status.runs if one.failure]
    assert [one.reason for one in failures] == ["LoadDisappeared"]


def test_a_server_whose_rollout_is_halted_fails_the_run() -> None:
    lab = serving()
    condition(lab, lab.named("-b0-"), "Progressing", "False", "the first replica failed")
    failures = [one.failure for one in lab.status.runs if one.failure]
    assert [one.reason for one in failures] == ["ServerFailed"]
    assert "the first replica failed" in failures[0].message
