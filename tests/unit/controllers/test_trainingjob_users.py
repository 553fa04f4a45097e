"""Tests of the user and rights of worker pods: the defaults for fields that a template does not set, and
templates that the kubelet would reject.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.testing.builders import make_job
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.trainingjob.templates import forbidden_root
from convoy_controllers.trainingjob.validity import violation
from convoy_controllers.workers.pod import HOME_VOLUME
from convoy_controllers.workers.security import container_security, pod_security
from convoy_crds import terms
from convoy_crds.layout import slots
from convoy_crds.trainingjob import TrainingJob

ROOT = {"runAsUser": 0}
ALLOWED = {"runAsUser": 0, "runAsNonRoot": False}


def job_of(spec: dict[str, Any], worker: dict[str, Any] | None = None) -> TrainingJob:
    containers = [{"name": "w", "image": "i", "command": ["x"], **(worker or {})}, *spec.pop("others", [])]
    template = {"spec": {**spec, "containers": containers}}
    return make_job(engine=None, roles=[{"name": "worker", "replicas": 1, "template": template}])


def worker_of(job: TrainingJob) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod spec and the worker container of the job's first pod."""
    spec = pod(job, None, slots(job)[0])["spec"]
    return spec, spec["containers"][0]


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ({}, {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True, "fsGroup": 65532}),
        ({"runAsUser": None}, {"runAsUser": 65532, "runAsGroup": 65532}),
        ({"runAsUser": 1000}, {"runAsUser": 1000, "runAsGroup": None, "fsGroup": 65532}),
        ({"runAsUser": 1000, "runAsGroup": 100}, {"runAsUser": 1000, "runAsGroup": 100}),
        ({"runAsNonRoot": False}, {"runAsUser": 65532, "runAsNonRoot": False}),
        (ALLOWED, {"runAsUser": 0, "runAsGroup": None, "runAsNonRoot": False}),
        ({"fsGroup": 7}, {"fsGroup": 7, "fsGroupChangePolicy": "OnRootMismatch"}),
        ({"fsGroupChangePolicy": "Always"}, {"fsGroup": 65532, "fsGroupChangePolicy": "Always"}),
        ({"supplementalGroups": [5]}, {"supplementalGroups": [5], "runAsUser": 65532}),
        ({"seccompProfile": {"type": "Unconfined"}}, {"seccompProfile": {"type": "Unconfined"}}),
    ],
)
def test_fields_of_the_template_override_the_pod_s_defaults(
    own: dict[str, Any], wanted: dict[str, Any]
) -> None:
    made = pod_security(own)
    assert {name: made.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("own", "user", "wanted"),
    [
        (None, 65532, {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}),
        (
            {"capabilities": {"add": ["IPC_LOCK"]}},
            1000,
            {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}},
        ),
        (
            {"capabilities": {"drop": ["NET_RAW"]}},
            1000,
            {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["NET_RAW"]}},
        ),
        ({"privileged": True}, 65532, {"privileged": True}),
        ({"privileged": False}, 0, {"privileged": False}),
        (None, 0, {}),
        ({"runAsUser": 0}, 65532, {"runAsUser": 0}),
        (
            {"capabilities": {"add": ["CAP_SYS_ADMIN"]}},
            65532,
            {"capabilities": {"drop": ["ALL"], "add": ["CAP_SYS_ADMIN"]}},
        ),
        (
            {"allowPrivilegeEscalation": True, "readOnlyRootFilesystem": True},
            65532,
            {
                "allowPrivilegeEscalation": True,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            },
        ),
    ],
)
def test_container_is_confined_unless_its_user_is_root(
    own: dict[str, Any] | None, user: int, wanted: dict[str, Any]
) -> None:
    assert container_security(own, {"runAsUser": user}) == wanted


@pytest.mark.parametrize(
    ("spec", "worker", "path"),
    [
        ({"securityContext": ROOT}, {}, "securityContext.runAsUser"),
        ({}, {"securityContext": ROOT}, "containers[0].securityContext.runAsUser"),
        ({"securityContext": {**ROOT, "runAsNonRoot": True}}, {}, "securityContext.runAsUser"),
        (
            {"securityContext": ALLOWED},
            {"securityContext": {"runAsNonRoot": True}},
            "securityContext.runAsUser",
        ),
        (
            {"others": [{"name": "s", "securityContext": ROOT}]},
            {},
            "containers[1].securityContext.runAsUser",
        ),
        (
            {"initContainers": [{"name": "s", "securityContext": ROOT}]},
            {},
            "initContainers[0].securityContext.runAsUser",
        ),
        ({"securityContext": ALLOWED}, {}, ""),
        ({}, {"securityContext": ALLOWED}, ""),
        ({"securityContext": {"runAsNonRoot": False}}, {"securityContext": ROOT}, ""),
        ({"securityContext": ROOT}, {"securityContext": {"runAsUser": 1000}}, ""),
        ({"securityContext": {"runAsUser": 1000}}, {}, ""),
        ({"securityContext": None}, {"securityContext": {"runAsUser": None}}, ""),
    ],
)
def test_root_user_that_the_kubelet_would_reject_is_rejected_with_advice(
    spec: dict[str, Any], worker: dict[str, Any], path: str
) -> None:
    job = job_of(spec, worker)
    found = violation(Observed(job=job))
    if not path:
        assert found is None
        return
    assert [finding.path for finding in forbidden_root(job)] == [f"spec.roles[0].template.spec.{path}"]
    assert found is not None
    assert found.message.startswith(f"spec.roles[0].template.spec.{path}: user 0 is root")
    inner = (worker.get("securityContext") or {}).get("runAsNonRoot")
    place = "containers[0].securityContext" if inner else path.removesuffix(".runAsUser")
    assert f"set {place}.runAsNonRoot: false" in found.message


def test_a_pod_has_a_volume_for_a_home() -> None:
    spec, worker = worker_of(job_of({}))
    assert {"name": HOME_VOLUME, "emptyDir": {}} in spec["volumes"]
    assert {"name": HOME_VOLUME, "mountPath": terms.HOME_PATH} in worker["volumeMounts"]
    assert {"name": terms.ENV_HOME, "value": terms.HOME_PATH} in worker["env"]


def test_home_of_the_template_is_used() -> None:
    _, worker = worker_of(job_of({}, {"env": [{"name": "HOME", "value": "/data/me"}]}))
    assert terms.ENV_HOME not in [entry["name"] for entry in worker["env"]]


def test_volume_of_the_template_is_used_as_home() -> None:
    mount = {"name": "mine", "mountPath": terms.HOME_PATH}
    _, worker = worker_of(job_of({"volumes": [{"name": "mine", "emptyDir": {}}]}, {"volumeMounts": [mount]}))
    assert [m["name"] for m in worker["volumeMounts"] if m["mountPath"] == terms.HOME_PATH] == ["mine"]
    assert terms.ENV_HOME in [entry["name"] for entry in worker["env"]]


def test_launcher_reads_the_variable_that_the_pod_sets() -> None:
    from convoy_workloads.launcher.user_defaults import HOME_VARIABLE

    assert HOME_VARIABLE == terms.ENV_HOME
