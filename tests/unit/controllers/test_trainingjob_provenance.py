"""Tests of the record of a finished job: it has all that a repetition needs, or says what it lacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from convoy_controllers.run_view import RunView
from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.provenance import again, of_run, spec_digest
from convoy_controllers.version import VERSION
from convoy_controllers.views import NodeView, PodView
from convoy_crds.engine import Engine
from convoy_crds.provenance import MAX_MISSING, MAX_NODES, JobProvenance, RunImage
from convoy_crds.terms import (
    ANNOTATION_DATASET_VERSION,
    ANNOTATION_REVISION,
    LABEL_EXPERIMENT,
    LABEL_MANAGED,
    LABEL_ROLE,
)
from convoy_crds.trainingjob import TrainingJob

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
NOTES = {ANNOTATION_REVISION: "0123abc", ANNOTATION_DATASET_VERSION: "2026-01"}


def seeded_engine(**defaults: Any) -> Engine:
    properties = {name: {"type": "integer", "default": value} for name, value in defaults.items()}
    schema = {"type": "object", "properties": {"steps": {"type": "integer"}, **properties}}
    return make_engine(image="team/trainer:v1", paramsSchema=schema)


def ended(cluster: ToyCluster, digest: str = f"team/trainer@{DIGEST}") -> JobProvenance:
    """Let the job run and succeed. Return its record."""
    facts = RunView(python="3.11.7", torch="2.13.0")
    cluster.settle().train(30, loss=0.5).rank(0, facts=facts).settle()
    for name, pod in list(cluster.pods.items()):
        cluster.pod(name, image_ids={pod.container or "worker": digest} if digest else {})
    cluster.exit_all().settle()
    assert cluster.job.status.phase == "Succeeded"
    assert cluster.job.status.provenance is not None
    return cluster.job.status.provenance


def own_job(image: str = "registry:5000/team/own:v1", **more: Any) -> TrainingJob:
    """Return a job with a program of the user's own."""
    container = {"name": "main", "image": image, "command": ["python", "train.py", "--seed=7"], **more}
    roles = [{"name": "worker", "replicas": 1, "template": {"spec": {"containers": [container]}}}]
    job = make_job(engine=None, roles=roles)
    job.metadata.annotations = dict(NOTES)
    return job


def pod(role: str = "worker", node: str = "n0", **digests: str) -> PodView:
    return PodView(
        f"job-{role}-{node}", f"u-{role}-{node}", "Succeeded", node,
        labels={LABEL_ROLE: role}, owner_uid="uid-job", image_ids=digests,
    )  # fmt: skip


def test_a_job_that_runs_has_no_record() -> None:
    cluster = ToyCluster(make_job(), make_engine()).settle().train(30).settle()
    assert cluster.job.status.provenance is None


def test_the_record_of_a_job_with_an_engine_is_complete() -> None:
    job = make_job(engine={"name": "gpt", "params": {"steps": 30}})
    cluster = ToyCluster(job, seeded_engine(seed=11, width=64))
    found = ended(cluster)
    assert (found.missing, found.seed, found.convoy, found.generation) == ([], "11", VERSION, 1)
    assert found.images == [
        RunImage(role="worker", container="worker", image="team/trainer:v1", digest=f"team/trainer@{DIGEST}")
    ]
    assert (found.python, found.torch) == ("3.11.7", "2.13.0")
    assert found.engine is not None
    assert (found.engine.image, found.engine.defaults) == ("team/trainer:v1", {"seed": 11, "width": 64})
    assert (found.node_count, found.nodes) == (2, sorted(one.node or "" for one in cluster.pods.values()))
    assert found.spec_digest == spec_digest(cluster.job)
    cluster.spec(ttlSecondsAfterFinished=600)
    assert found.spec_digest != spec_digest(cluster.job)


def test_the_hardware_is_that_of_the_labels_of_the_nodes() -> None:
    cluster = ToyCluster(make_job(), seeded_engine(seed=1)).settle()
    first, second = (one.node or "" for one in cluster.pods.values())
    labels = {"nvidia.com/gpu.product": "H200", "node.kubernetes.io/instance-type": "p5", "rack": "r1"}
    cluster.nodes = {first: NodeView(first, labels=labels), second: NodeView(second)}
    assert ended(cluster).hardware == ["H200 p5"]


def test_a_job_that_fails_is_recorded_too() -> None:
    cluster = ToyCluster(make_job(activeDeadlineSeconds=60), make_engine()).settle()
    cluster.wait(61).settle()
    assert cluster.job.status.phase == "Failed"
    assert cluster.job.status.provenance is not None
    assert len(cluster.job.status.provenance.nodes) == 2


def test_the_pods_of_independent_roles_are_recorded() -> None:
    template = {"spec": {"containers": [{"name": "helper", "image": "team/helper:v2"}]}}
    roles = [
        {"name": "worker", "replicas": 1},
        {"name": "helper", "replicas": 1, "membership": "Independent", "template": template},
    ]
    cluster = ToyCluster(make_job(roles=roles), seeded_engine(seed=1)).settle().settle()
    found = ended(cluster)
    assert {(one.role, one.container, bool(one.digest)) for one in found.images} == {
        ("worker", "worker", True),
        ("helper", "helper", True),
    }
    assert found.torch == "2.13.0"


def test_a_repetition_has_the_recorded_images_parameters_and_notes() -> None:
    job = make_job(engine={"name": "gpt", "params": {"steps": 30}}, suspend=False)
    job.metadata.annotations = dict(NOTES)
    cluster = ToyCluster(job, seeded_engine(seed=11))
    ended(cluster)
    manifest = again(cluster.job)
    assert manifest["metadata"] == {"name": "job", "namespace": "default", "annotations": NOTES}
    repeated = TrainingJob.model_validate(manifest)
    assert repeated.spec.engine is not None
    assert repeated.spec.engine.params == {"steps": 30, "seed": 11}
    pinned = f"team/trainer@{DIGEST}"
    later = seeded_engine(seed=12)
    later.spec.image = "team/trainer:v2"
    second = ToyCluster(_with_uid(repeated), later)
    made = second.settle().plans[0].manifests
    assert [one["spec"]["containers"][0]["image"] for one in made] == [pinned, pinned]


def _with_uid(job: TrainingJob) -> TrainingJob:
    job.metadata.uid, job.metadata.generation = "uid-job", 1
    return job


def test_a_repetition_of_an_own_program_is_the_same_job_with_digests() -> None:
    job = own_job()
    spec = job.spec.to_dict()
    job.status.provenance = of_run(job, None, [pod(main=f"registry:5000/team/own@{DIGEST}")])
    assert not [one for one in job.status.provenance.missing if "figure" not in one]
    repeated = again(job, "other")
    containers = spec["roles"][0]["template"]["spec"]["containers"]
    containers[0]["image"] = f"registry:5000/team/own@{DIGEST}"
    del spec["suspend"]
    assert (repeated["metadata"]["name"], repeated["spec"]) == ("other", spec)
    assert job.spec.roles[0].template is not None
    assert job.spec.roles[0].template.spec.containers[0].image == "registry:5000/team/own:v1"


def test_sidecars_and_init_containers_are_pinned() -> None:
    job = own_job()
    template = job.spec.roles[0].to_dict()["template"]
    template["spec"]["containers"].append({"name": "proxy", "image": "mesh/proxy"})
    template["spec"]["initContainers"] = [{"name": "fetch", "image": "team/fetch:v3@" + OTHER}]
    job = make_job(engine=None, roles=[{"name": "worker", "replicas": 1, "template": template}])
    ran = {
        "main": f"registry:5000/team/own@{DIGEST}",
        "proxy": f"docker.io/mesh/proxy@{OTHER}",
        "fetch": f"team/fetch@{OTHER}",
    }
    job.status.provenance = of_run(job, None, [pod(**ran)])
    body = again(job)["spec"]["roles"][0]["template"]["spec"]
    assert [one["image"] for one in body["containers"]] == [
        f"registry:5000/team/own@{DIGEST}",
        f"mesh/proxy@{OTHER}",
    ]
    assert body["initContainers"][0]["image"] == f"team/fetch@{OTHER}"


@pytest.mark.parametrize(
    ("pods", "missing"),
    [
        ([], "the digest of registry:5000/team/own:v1 of container main of role worker"),
        ([pod(main=DIGEST)], "a registry with registry:5000/team/own:v1 of container main of role worker"),
        (
            [pod(node="n0", main=f"x@{DIGEST}"), pod(node="n1", main=f"x@{OTHER}")],
            "one image of container main of role worker: its pods ran 2 different ones",
        ),
    ],
)
def test_images_without_one_digest_are_missing(pods: list[PodView], missing: str) -> None:
    found = of_run(own_job(), None, pods)
    assert any(one.startswith(missing) for one in found.missing), found.missing


def test_settings_of_an_own_program_are_recorded() -> None:
    job = own_job(env=[{"name": "GIT_COMMIT", "value": "feed"}, {"name": "DATA_VERSION", "value": "v3"}])
    found = of_run(job, None, [])
    assert (found.revision, found.dataset, found.seed) == ("0123abc", "2026-01", "7")
    job.metadata.annotations = {}
    found = of_run(job, None, [])
    assert (found.revision, found.dataset, found.seed) == ("feed", "v3", "7")


def test_a_missing_revision_seed_and_figure_are_named() -> None:
    job = own_job(command=["python", "train.py"])
    job.metadata.annotations = {}
    found = of_run(job, None, [pod(main=f"x@{DIGEST}")])
    assert found.missing == ["the revision of the code", "the seed", "any figure of the result"]


def test_the_users_labels_are_kept() -> None:
    job = own_job()
    queue = {"kueue.x-k8s.io/queue-name": "team", "project": "x"}
    job.metadata.labels = {**queue, LABEL_EXPERIMENT: "trial", LABEL_MANAGED: "convoy"}
    job.status.provenance = of_run(job, None, [])
    assert again(job)["metadata"]["labels"] == queue


def test_a_step_that_is_left_open_is_named() -> None:
    tiers = {"local": {}, "remote": {"store": "s3"}}
    for step, named in ((0, True), (40, False)):
        source = {"job": "first", "step": step}
        job = make_job(checkpoint={"tiers": tiers, "resumeFrom": source})
        found = of_run(job, make_engine(), [])
        assert any("resumeFrom.step" in one for one in found.missing) is named


def test_defaults_of_null_are_left_out() -> None:
    properties = {"limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}}
    engine = make_engine(paramsSchema={"type": "object", "properties": properties})
    found = of_run(make_job(), engine, [])
    assert found.engine is not None
    assert found.engine.defaults == {}


def test_an_engine_that_was_deleted_is_named() -> None:
    found = of_run(make_job(), None, [pod(worker=f"x@{DIGEST}")])
    assert found.engine is None
    assert "the Engine gpt: it was deleted before the job ended" in found.missing


def test_the_record_is_bounded() -> None:
    containers = [{"name": f"c{number}", "image": "x" * 512} for number in range(6)]
    roles = [
        {"name": f"r{number}", "replicas": 1, "template": {"spec": {"containers": containers}}}
        for number in range(8)
    ]
    job = make_job(roles=roles)
    engine = seeded_engine(**{f"p{number}": number for number in range(1000)})
    pods = [pod(f"r{number % 8}", f"n{number}", c0="y" * 4000) for number in range(500)]
    found = of_run(job, engine, pods)
    assert (len(found.nodes), found.node_count, len(found.missing)) == (MAX_NODES, 500, MAX_MISSING)
    assert found.engine is not None
    assert found.engine.defaults == {}
    assert len(json.dumps(found.to_dict())) < 64 * 1024
    JobProvenance.model_validate(found.to_dict())
