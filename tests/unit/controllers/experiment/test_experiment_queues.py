"""Tests of an Experiment in a queue, and of the placement of its jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.crds.experiments import make_experiment

from convoy_controllers.cached import CachedObject
from convoy_controllers.experiment.controller import CONTROLLER
from convoy_controllers.placement.kueue.names import LABEL_PRIORITY, LABEL_QUEUE
from convoy_controllers.resources import TRAINING_JOBS

from .labs import Lab
from .test_experiment_serving import P99, PREDICTION, SERVER

QUEUE = {LABEL_QUEUE: "team", LABEL_PRIORITY: "low"}
PLACEMENT = {"topologyKeys": ["rack"], "pack": "Required"}
JOB = {
    "engine": {"name": "gpt", "params": {}},
    "roles": [{"name": "worker", "replicas": 2}],
    "placement": PLACEMENT,
}
OUTCOME = {"name": "p99", "source": {"status": "goodput.ratio"}, "better": "Lower"}


def queued(arm: dict[str, Any], outcome: dict[str, Any] = OUTCOME, labels: Any = QUEUE, **more: Any) -> Lab:
    """Return an experiment with two equal arms in a queue, whose first run has started."""
    roles = (("fast", "Candidate"), ("slow", "Comparator"))
    arms = [{"name": name, "role": role, **arm} for name, role in roles]
    made = make_experiment(arms=arms, outcomes=[outcome], predictions=[PREDICTION], **more)
    made.metadata.labels = {"team": "a", **labels}
    lab = Lab(made)
    lab.register()
    return lab


def training(**more: Any) -> Lab:
    return queued({"type": "TrainingJob", "template": {"spec": JOB}}, **more)


def show(lab: Lab, name: str, start: str = "", state: str = "Waiting", queue: str = "team") -> None:
    """Let a job show its queue, and its start if the queue has admitted it."""
    status: dict[str, Any] = {"phase": "Pending", "placement": {"queue": {"name": queue, "state": state}}}
    if start:
        status["startTime"] = start
    lab.jobs[name] = replace(lab.jobs[name], status=status)


def test_every_trainingjob_of_an_experiment_waits_in_its_queue() -> None:
    lab = training()
    lab.run_all(lambda params: {})
    assert len(lab.created) > 3
    for name in lab.created:
        found = lab.manifests[name]["metadata"]["labels"]
        assert {key: found[key] for key in QUEUE} == QUEUE and "team" not in found


def test_a_job_has_no_label_of_a_queue_without_one() -> None:
    lab = training(labels={})
    assert not any(key.startswith("kueue") for key in lab.manifests[lab.created[-1]]["metadata"]["labels"])


def test_a_servingjob_has_no_queue_but_its_load_has() -> None:
    arm = {"type": "ServingJob", "template": {"spec": SERVER}, "load": {"rate": 5}}
    lab = queued(arm, P99)
    server = lab.named("-b0-")
    assert LABEL_QUEUE not in lab.manifests[server]["metadata"]["labels"]
    status = {"conditions": [{"type": "Available", "status": "True"}]}
    lab.jobs[server] = replace(lab.jobs[server], status=status)
    lab.settle()
    [load] = [name for name in lab.active if name not in (server,)]
    assert lab.manifests[load]["metadata"]["labels"][LABEL_QUEUE] == "team"
    show(lab, load)
    lab.wait(4000)
    lab.settle()
    assert load in lab.active and lab.status.failed_blocks == 0


def test_the_placement_of_an_arm_is_that_of_its_jobs() -> None:
    lab = training()
    assert lab.manifests[lab.named("-b0-")]["spec"]["placement"] == PLACEMENT


def test_the_time_in_a_queue_does_not_count_against_the_deadline() -> None:
    lab = training(runDeadlineSeconds=100)
    name = lab.named("-b0-")
    show(lab, name)
    lab.wait(5000)
    lab.settle()
    assert name in lab.active and not lab.status.blocks and not lab.status.failed_blocks
    show(lab, name, lab.now.isoformat(), "Admitted")
    lab.wait(99)
    made = lab.step()
    assert made.requeue_after == pytest.approx(1.0) and not lab.status.runs[-1].failure
    lab.wait(1)
    lab.step()
    [failure] = [one.failure for one in lab.status.runs if one.name == name]
    assert failure is not None and failure.reason == "RunDeadlineExceeded"


def test_the_admission_of_a_job_queues_its_experiment() -> None:
    """The job may stay Pending after it, so that only its start shows that the deadline runs."""
    relevant = next(one for one in CONTROLLER.watches if one.resource == TRAINING_JOBS).concern

    def seen(**status: Any) -> Any:
        return relevant(CachedObject("ml", "run", "uid", 1, {"metadata": {}, "status": status}))

    assert seen(phase="Pending") != seen(phase="Pending", startTime="2026-01-01T00:00:00Z")
    assert seen(phase="Pending") == seen(phase="Pending", reason="QueueWaiting")


def test_the_deadline_starts_again_after_an_eviction() -> None:
    lab = training(runDeadlineSeconds=100)
    name = lab.named("-b0-")
    show(lab, name, lab.now.isoformat(), "Admitted")
    lab.wait(90)
    lab.step()
    show(lab, name, state="Evicted")
    lab.wait(90)
    lab.step()
    show(lab, name, lab.now.isoformat(), "Admitted")
    lab.wait(90)
    lab.step()
    assert name in lab.active and not [one for one in lab.status.runs if one.failure]


def test_a_job_without_a_queue_has_its_deadline_from_its_creation() -> None:
    lab = training(labels={}, runDeadlineSeconds=100)
    name = lab.named("-b0-")
    lab.jobs[name] = replace(lab.jobs[name], status={"phase": "Pending"})
    lab.wait(100)
    lab.step()
    assert [one.name for one in lab.status.runs if one.failure] == [name]
