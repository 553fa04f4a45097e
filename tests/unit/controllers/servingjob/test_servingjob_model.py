"""Tests of the choice of the model that the replicas load."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controllers.servingjob.servers import Servers, make_store, make_trained

from convoy_controllers.commands import DeliverModel


def following(**checkpoint: Any) -> Servers:
    """Return a job that follows the newest generation, which is step 10."""
    source = {"job": "train", "store": "s3", "follow": True, "minInterval": "10m", **checkpoint}
    servers = Servers(model={"checkpoint": source})
    servers.store, servers.source = make_store(), make_trained(10)
    return servers


def chosen(servers: Servers) -> tuple[str, str, int, int]:
    model = servers.job.status.model
    assert model is not None
    return model.job, model.uid, model.incarnation, model.step


def test_the_newest_generation_is_chosen_with_its_origin() -> None:
    servers = following().settle()
    assert chosen(servers) == ("train", "uid-train", 1, 10)
    model = servers.job.status.model
    assert model is not None and (model.store, model.loss) == ("s3", 2.5)
    assert servers.condition["ModelReady"] == ("True", "ModelChosen")
    spec = servers.manifests["llm-worker-0-0"]["spec"]
    variables = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert variables["CONVOY_MODEL_PATH"] == "/var/run/convoy-model"
    (volume,) = (one for one in spec["volumes"] if one["name"] == "convoy-model")
    content = {"convoy.dev/content": "model"}
    assert volume["csi"] == {"driver": "agent.convoy.dev", "readOnly": True, "volumeAttributes": content}
    assert {"name": "convoy-model", "mountPath": "/var/run/convoy-model", "readOnly": True} in spec[
        "containers"
    ][0]["volumeMounts"]


def test_a_newer_generation_waits_for_the_interval() -> None:
    servers = following().settle()
    servers.source = make_trained(20)
    made = servers.step()
    assert chosen(servers)[3] == 10
    assert made.requeue_after is not None and 500 < made.requeue_after <= 600
    servers.wait(600).settle()
    assert chosen(servers)[3] == 20 and servers.job.status.ready == "2/2"


def test_an_interval_beyond_all_dates_is_an_interval() -> None:
    servers = following(minInterval="99999999999h").settle().wait(7200)
    servers.source = make_trained(20)
    servers.settle()
    assert chosen(servers)[3] == 10


def test_no_roll_to_a_newer_generation_starts_during_a_rollout() -> None:
    servers = following().settle().wait(700)
    servers.places = lambda pod: False
    servers.rollout(progressDeadlineSeconds=3000).size(2).step()
    servers.source = make_trained(20)
    servers.run(3)
    assert chosen(servers)[3] == 10
    servers.places = lambda pod: True
    servers.settle()
    assert chosen(servers)[3] == 20


def test_a_newer_generation_may_repair_a_halted_rollout() -> None:
    servers = following().settle().wait(700)
    servers.source = make_trained(20)
    servers.good = lambda pod: servers.revisions[pod.labels["convoy.dev/revision"]].spec.generation.step != 20  # type: ignore[union-attr]
    servers.run(10, 100)
    assert servers.condition["Progressing"] == ("False", "ProgressDeadlineExceeded")
    assert servers.serving == 2
    servers.source = make_trained(30)
    servers.run(40)
    assert chosen(servers)[3] == 30
    assert servers.condition["Progressing"] == ("True", "RolloutComplete")


@pytest.mark.parametrize(("failure", "step"), [("NOT_FOUND", 30), ("STORE_UNREACHABLE", 20)])
def test_a_newer_generation_replaces_one_that_was_removed_from_the_store(failure: str, step: int) -> None:
    servers = following().settle().wait(700)
    servers.rollout(progressDeadlineSeconds=3000)
    servers.source = make_trained(20)
    first: list[str] = []

    def deliver(order: DeliverModel) -> tuple[str, str]:
        """Deliver step 20 to one pod only."""
        if order.source.step != 20 or not first:
            first.extend([order.pod_uid] if order.source.step == 20 else [])
            return "", ""
        return ("", "") if order.pod_uid in first else (failure, "the cause")

    servers.model = deliver
    servers.run(12)
    assert servers.condition["ModelReady"][0] == "False"
    assert servers.condition["Progressing"] == ("True", "RollingOut")
    servers.source = make_trained(30)
    servers.wait(700).run(3)
    assert chosen(servers)[3] == step


def test_a_restored_job_goes_back_to_an_earlier_step_of_a_later_incarnation() -> None:
    servers = following().settle().wait(700)
    servers.source = make_trained(5, incarnation=2)
    servers.settle()
    assert chosen(servers)[2:] == (2, 5)


def test_a_generation_stays_without_follow() -> None:
    servers = following(follow=False).settle().wait(7200)
    servers.source = make_trained(20)
    servers.settle()
    assert chosen(servers)[3] == 10


def test_a_pinned_step_needs_no_job_that_still_exists() -> None:
    servers = Servers(model={"checkpoint": {"uid": "gone", "store": "s3", "step": 7}})
    servers.store = make_store()
    servers.settle()
    assert chosen(servers) == ("", "gone", 0, 7) and servers.job.status.ready == "2/2"


def test_replicas_go_on_after_the_training_job_was_deleted() -> None:
    servers = following().settle()
    servers.source = None
    servers._remove("llm-worker-0-0")
    servers.settle()
    assert chosen(servers)[3] == 10 and servers.job.status.ready == "2/2"


def test_another_job_of_the_same_name_waits_for_the_interval_too() -> None:
    servers = following().settle()
    servers.source = make_trained(uid="uid-second")
    servers.settle()
    assert chosen(servers)[1] == "uid-train", "the other job has saved nothing yet"
    servers.source = make_trained(3, uid="uid-second")
    servers.run(3)
    assert chosen(servers)[1] == "uid-train"
    servers.wait(600).settle()
    assert chosen(servers) == ("train", "uid-second", 1, 3)


def test_another_job_of_the_same_name_changes_nothing_without_follow() -> None:
    servers = following(follow=False).settle().wait(7200)
    servers.source = make_trained(3, uid="uid-second")
    servers.settle()
    assert chosen(servers) == ("train", "uid-train", 1, 10) and servers.job.status.ready == "2/2"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no store": ({"store": None}, "spec.model.checkpoint.store: there is no CheckpointStore 's3'"),
    "store not allowed": (
        {"store": make_store(allowedNamespaces=["other"])},
        "does not allow jobs of namespace 'default'; add the namespace to the store's spec.allowedNamespaces",
    ),
    "store not ready": ({"store": make_store("False")}, "'s3' cannot be used: no such bucket"),
    "no job": ({"source": None}, "spec.model.checkpoint.job: there is no TrainingJob 'train'"),
    "nothing saved": ({"source": make_trained()}, "TrainingJob 'train' has no checkpoint in the store yet"),
    "other store": (
        {"source": make_trained(3, remote={"store": "other"})},
        "TrainingJob 'train' does not save to CheckpointStore 's3' but to 'other'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_missing_model_is_named_and_starts_no_pod(case: str) -> None:
    facts, words = WRONG[case]
    servers = following()
    for name, value in facts.items():
        setattr(servers, name, value)
    servers.settle()
    assert servers.condition["ModelReady"] == ("False", "ModelMissing") and not servers.pods
    assert words in servers.message("ModelReady")
    assert servers.job.status.reason == "ModelMissing" and words in servers.message("Available")


@pytest.mark.parametrize("case", ["no store", "store not ready"])
def test_running_replicas_survive_the_loss_of_the_store(case: str) -> None:
    servers = following().settle()
    servers.store = WRONG[case][0]["store"]
    servers.settle()
    assert servers.condition["ModelReady"] == ("False", "ModelMissing")
    assert servers.job.status.ready == "2/2" and chosen(servers)[3] == 10


def test_a_later_step_than_the_newest_is_named() -> None:
    servers = following(follow=False, step=50).settle()
    assert "spec.model.checkpoint.step: TrainingJob 'train' has only saved step 10" in servers.message(
        "ModelReady"
    )


def test_a_folder_of_a_volume_is_no_variable() -> None:
    servers = Servers(model={"volume": {"claimName": "weights", "path": "a$(HOME)"}}).settle()
    container = servers.manifests["llm-worker-0-0"]["spec"]["containers"][0]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["CONVOY_MODEL_PATH"] == "/var/run/convoy-model/a$$(HOME)"


def test_a_volume_is_mounted_read_only() -> None:
    servers = Servers(model={"volume": {"claimName": "models", "path": "llama/7b"}}).settle()
    spec = servers.manifests["llm-worker-0-0"]["spec"]
    volume = next(one for one in spec["volumes"] if one["name"] == "convoy-model")
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    container = spec["containers"][0]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["CONVOY_MODEL_PATH"] == "/var/run/convoy-model/llama/7b"
    mount = next(one for one in container["volumeMounts"] if one["name"] == "convoy-model")
    assert mount["readOnly"] is True
    assert servers.condition["ModelReady"] == ("True", "ModelInVolume")
