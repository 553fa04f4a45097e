"""A violating job, its remedy and a clean job for each rule of advice."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.advice.subject import Subject, Surroundings, of_serving, of_training
from convoy_crds.servingjob import ServingJob
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import catalogue

DIGEST = "registry.example.com/train@sha256:" + "0" * 64
ZONE = "topology.kubernetes.io/zone"
CONTAINER = "spec.roles[0].template.spec.containers[0]"


@dataclass(frozen=True)
class Case:
    """A violation of a rule."""

    rule: str
    path: str
    """Path of the field that the finding names."""
    body: Mapping[str, Any]
    remedy: Mapping[str, Any]
    """Changes that follow the finding's remedy: values by path, with numbers for items of lists."""
    around: Surroundings = field(default_factory=Surroundings)
    remedied: Surroundings | None = None
    """Surroundings after the remedy; None if they stay the same."""
    kind: str = "TrainingJob"

    def subject(self, remedied: bool = False) -> Subject:
        """Return the job, before or after the remedy."""
        body = deepcopy(dict(self.body))
        for path, value in (self.remedy if remedied else {}).items():
            put(body, path, value)
        around = self.remedied if remedied and self.remedied is not None else self.around
        return subject_of(body, around, self.kind)


def put(body: Any, path: str, value: Any) -> None:
    """Set the value at a path such as `spec.roles.0.name`; None removes the field."""
    *parents, last = path.split("/" if "/" in path else ".")
    for part in parents:
        body = body[int(part)] if isinstance(body, list) else body.setdefault(part, {})
    if value is None:
        del body[last]
    elif isinstance(body, list):
        body[int(last)] = value
    else:
        body[last] = value


def subject_of(
    body: Mapping[str, Any], around: Surroundings | None = None, kind: str = "TrainingJob"
) -> Subject:
    """Return the subject for a manifest. The catalogue's Engines are known."""
    known = around or Surroundings()
    if not known.engines:
        known = Surroundings(catalogue(), known.similar, known.claim_zones, known.followed)
    if kind == "ServingJob":
        return of_serving(ServingJob.model_validate(body), known)
    return of_training(TrainingJob.model_validate(body), known)


def own(
    status: Mapping[str, Any] | None = None, pod: Mapping[str, Any] | None = None, **container: Any
) -> dict[str, Any]:
    """Return a clean job with an image of its own. Fields of its container may be replaced."""
    fields = {
        "name": "worker",
        "image": DIGEST,
        "command": ["torchrun", "train.py", "--seed=1", "--steps=100"],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"}},
        **container,
    }
    spec = {"containers": [fields], **(pod or {})}
    return {
        "metadata": {"name": "job", "annotations": {"convoy.dev/code-revision": "4f2a"}},
        "spec": {"roles": [{"name": "worker", "replicas": 2, "template": {"spec": spec}}]},
        "status": dict(status or {}),
    }


def engine(status: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a clean job with an Engine."""
    body = {"engine": {"name": "gpt", "params": {"steps": 100}}, "roles": [{"name": "worker", "replicas": 2}]}
    return {"metadata": {"name": "job"}, "spec": body | spec, "status": dict(status or {})}


def follower() -> dict[str, Any]:
    """Return a service that follows the checkpoints of TrainingJob `job`."""
    model = {"checkpoint": {"job": "job", "store": "s3", "follow": True}}
    roles = [{"name": "server", "engine": {"name": "lm"}}]
    return {"metadata": {"name": "llm"}, "spec": {"replicas": 1, "roles": roles, "model": model}}


def rollouts() -> dict[str, Any]:
    """Return a job of a trainer and helpers that nothing ends."""
    body = own(command=["python", "rl.py", "--seed=1"])
    (trainer,) = body["spec"]["roles"]
    helper = own(command=["python", "rollout.py"])["spec"]["roles"][0]
    body["spec"]["roles"] = [trainer, {**helper, "name": "rollout", "membership": "Independent"}]
    return body


def _loop(*stop: str) -> Subject:
    command = ["python", "collect.py", "--seed=1", "--from=http://llm.default:8000", *stop]
    return subject_of(own(command=command))


CLAIM = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "imagenet-v2"}}],
    "nodeSelector": {ZONE: "b"},
}
CLEAN = own()["spec"]["roles"][0]["template"]["spec"]["containers"]
POD = "spec/roles/0/template/spec"
USED = {"requested": 32.0, "used": 3.2, "seconds": 120}

CASES = (
    Case(
        "T01",
        f"{CONTAINER}.image",
        own(image="registry.example.com/train:latest"),
        {f"{POD}/containers/0/image": DIGEST},
    ),
    Case(
        "T01",
        f"{CONTAINER}.image",
        own(image="registry.example.com:5000/train"),
        {f"{POD}/containers/0/image": DIGEST},
    ),
    Case("T01", f"{CONTAINER}.image", own(image="train:1.4"), {f"{POD}/containers/0/image": DIGEST}),
    Case(
        "T02",
        f"{CONTAINER}.resources.requests",
        own(resources={"requests": {"cpu": "4"}}),
        {f"{POD}/containers/0/resources/requests/memory": "8Gi"},
    ),
    Case(
        "T02",
        "spec.roles[0].template.spec.nodeSelector",
        own(resources={"limits": {"nvidia.com/gpu": 8, "cpu": "64", "memory": "512Gi"}}),
        {f"{POD}/nodeSelector": {"nvidia.com/gpu.product": "H100"}},
    ),
    Case(
        "T03",
        "spec",
        engine(),
        {"metadata.labels": {"convoy.dev/experiment": "sweep"}},
        Surroundings(similar=("b", "c", "d", "e")),
        Surroundings(),
    ),
    Case(
        "T04",
        "spec.checkpoint.interval",
        engine({"facts": {"saveSeconds": 2.0}}, checkpoint={"interval": "2h", "tiers": {"local": {}}}),
        {"spec.checkpoint.interval": "Auto"},
    ),
    Case(
        "T04",
        "spec.checkpoint.interval",
        engine({"facts": {"saveSeconds": 2.0}}, checkpoint={"interval": "10s", "tiers": {"local": {}}}),
        {"spec.checkpoint.interval": "10m"},
    ),
    Case(
        "T05",
        f"{CONTAINER}.env",
        own(command=["python", "train.py"]),
        {f"{POD}/containers/0/command": ["python", "train.py", "seed=7"]},
    ),
    Case(
        "T05",
        f"{CONTAINER}.command",
        own(command=["python", "train.py", "--seed", "1", "--data", "s3://bucket/imagenet"]),
        {
            f"{POD}/containers/0/command": [
                "python",
                "train.py",
                "--seed",
                "1",
                "--data",
                "s3://bucket/imagenet/v2",
            ]
        },
    ),
    Case(
        "T05",
        "spec.roles[0].template.spec.volumes[0].persistentVolumeClaim.claimName",
        own(pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "imagenet-data"}}]}),
        {"metadata.annotations": {"convoy.dev/dataset-version": "2026-11"}},
    ),
    Case(
        "T06",
        f"{CONTAINER}.command",
        own(command=["sh", "-c", "python train.py --seed=1 && python serve.py"]),
        {f"{POD}/containers/0/command": ["python", "train.py", "--seed=1"]},
    ),
    Case(
        "T06",
        "spec.roles[0].template.spec.containers[1].image",
        own(pod={"containers": [*CLEAN, {"name": "api", "image": "vllm/vllm-openai@sha256:" + "1" * 64}]}),
        {f"{POD}/containers": CLEAN},
    ),
    Case(
        "T07",
        "spec.roles[0].template.spec.volumes[0].persistentVolumeClaim.claimName",
        own(pod=CLAIM),
        {f"{POD}/nodeSelector": {ZONE: "a"}},
        Surroundings(claim_zones={"imagenet-v2": frozenset({"a"})}),
    ),
    Case("T08", "spec.activeDeadlineSeconds", rollouts(), {"spec.activeDeadlineSeconds": 86400}),
    Case(
        "T08",
        "spec.model.checkpoint.follow",
        follower(),
        {},
        Surroundings(followed=_loop()),
        Surroundings(followed=_loop("--max-steps=1000")),
        kind="ServingJob",
    ),
    Case(
        "T09",
        f"{CONTAINER}.volumeMounts[0].mountPath",
        own(
            {"facts": {"data": [{"path": "/data", "files": 20000, "medianBytes": 8192}]}},
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        ),
        {"status.facts.data": [{"path": "/data", "files": 3, "medianBytes": 55_000_000}]},
    ),
    Case(
        "T10",
        f"{CONTAINER}.resources.requests.cpu",
        own({"facts": {"processors": USED}}),
        {"status.facts.processors": {"requested": 4.0, "used": 3.2, "seconds": 120}},
    ),
    Case(
        "T10",
        f"{CONTAINER}.resources.limits.nvidia.com/gpu",
        own(
            {"facts": {"processors": USED, "accelerators": {"requested": 16.0, "used": 1.6, "seconds": 120}}},
            pod={"nodeSelector": {"nvidia.com/gpu.product": "H100"}},
            resources={"limits": {"nvidia.com/gpu": 8, "cpu": 16, "memory": "64Gi"}},
        ),
        {"status.facts.accelerators.used": 12.0},
    ),
    Case(
        "T11",
        "metadata.annotations",
        own({"phase": "Succeeded", "progress": {"step": 100, "loss": 1.5}}) | {"metadata": {"name": "job"}},
        {"metadata/annotations": {"convoy.dev/code-revision": "4f2a"}},
    ),
    Case(
        "T11", "status.result", own({"phase": "Succeeded"}), {"status.progress": {"step": 100, "loss": 1.5}}
    ),
    Case(
        "T12",
        "spec",
        engine({"phase": "Succeeded", "result": {"accuracy": 0.93}}),
        {"metadata.labels": {"convoy.dev/experiment": "seeds"}},
    ),
)
