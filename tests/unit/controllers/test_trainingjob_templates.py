"""Tests of templates: null values, conflicts with Convoy's own parts, and refusals in the API server's own
words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job
from convoy_controllers.trainingjob.plan import plan
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.trainingjob.templates import clashes
from convoy_controllers.workers.pod import with_incarnation
from convoy_controllers.workers.refusal import Refusal, findings, refusal
from convoy_crds.layout import slots
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Phase

WORKER: dict[str, Any] = {"name": "worker", "image": "a", "command": ["a"]}
WHERE = "spec.roles[1].template"


def job_of(**spec: Any) -> TrainingJob:
    """Return a job whose second role has a template with this pod spec."""
    chief = {"name": "chief", "replicas": 1, "template": {"spec": {"containers": [WORKER]}}}
    worker = {"name": "worker", "replicas": 1, "template": {"spec": {"containers": [WORKER], **spec}}}
    return make_job(engine=None, roles=[chief, worker])


def body_of(job: TrainingJob) -> dict[str, Any]:
    return pod(job, None, slots(job)[1])


TEMPLATE: dict[str, Any] = {
    "containers": [
        {
            **WORKER,
            "env": [{"name": "CONVOY_SOCKET", "value": "x"}, {"name": "A", "value": "b"}],
            "resources": {"limits": {"cpu": "1", "memory": "lots"}},
            "volumeMounts": [{"name": "d", "mountPath": "/d"}],
            "livenessProbe": {"httpGet": {"port": []}},
        },
        {"name": "logs", "image": "a", "args": ["a"], "securityContext": {}, "tty": "yes"},
    ],
    "volumes": [{"name": "d", "hostPath": "/x"}],
    "tolerations": [{"key": "a"}, {"key": "b", "tolerationSeconds": 1.5}],
    "topologySpreadConstraints": {},
}
UNDECODED = 'Pod in version "v1" cannot be handled as a Pod: '
UNMARSHAL = UNDECODED + "json: cannot unmarshal {} into Go struct field {} of type {}"


@pytest.mark.parametrize(
    ("message", "causes", "found"),
    [
        (
            'Pod "job-worker-0" is invalid: spec.containers[0].env[0].name: Invalid value: "A"',
            [("spec.containers[0].env[0].name", 'Invalid value: "A"')],
            ['spec.containers[0].env[1].name: Invalid value: "A"'],
        ),
        (
            'Pod "job-worker-0" is invalid: [...]',
            [
                ("spec.volumes[0].name", "Required value"),
                ("metadata.labels", "Invalid value"),
                ("<nil>", "x"),
            ],
            ["spec.volumes[0].name: Required value", "metadata.labels: Invalid value"],
        ),
        (
            'Pod "job-worker-0" is invalid: spec.volumes[1].csi: Forbidden: x',
            [("spec.volumes[1].csi", "Forbidden: x")],
            [": spec.volumes[1].csi: Forbidden: x"],
        ),
        ('Pod "job-worker-0" is invalid: something', [], [": something"]),
        (
            UNDECODED
            + 'strict decoding error: unknown field "spec.containers[0].tt", unknown field "spec.x"',
            [],
            ["spec.containers[0].tt: there is no such field", "spec.x: there is no such field"],
        ),
        (
            UNMARSHAL.format("object", "PodSpec.spec.topologySpreadConstraints", "[]v1.Spread"),
            [],
            ["spec.topologySpreadConstraints: must be a list, is an object"],
        ),
        (
            UNMARSHAL.format("string", "Container.spec.containers.tty", "bool"),
            [],
            ["spec.containers[1].tty: must be true or false, is text"],
        ),
        (
            UNMARSHAL.format("number 1.5", "Toleration.spec.tolerations.tolerationSeconds", "int64"),
            [],
            ["spec.tolerations[1].tolerationSeconds: must be a whole number, is 1.5"],
        ),
        (
            UNMARSHAL.format("string", "Volume.spec.volumes.VolumeSource.hostPath", "v1.HostPath"),
            [],
            ["spec.volumes[0].hostPath: must be a Kubernetes v1.HostPath, is text"],
        ),
        (
            UNMARSHAL.format(
                "array", "Probe.spec.containers.livenessProbe.ProbeHandler.httpGet.port", "int32"
            ),
            [],
            ["spec.containers[0].livenessProbe.httpGet.port: must be a whole number, is a list"],
        ),
        (
            UNDECODED + "quantities must match the regular expression '^x$'",
            [],
            ["spec.containers[0].resources.limits.memory: must be a quantity such as 500m, 2 or 16Gi"],
        ),
        (UNDECODED + "something else", [], [": something else"]),
        ('pods "job-worker-0" is forbidden: exceeded quota: q', [], []),
        ('admission webhook "w" does not support dry run', [], []),
        ('admission webhook "w" denied the request: Pod "x" is invalid: y', [("spec.x", "y")], []),
        ("pods \"job-worker-0\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no", [], []),
    ],
)
def test_finding_names_the_field_of_the_job(message: str, causes: Any, found: list[str]) -> None:
    job = job_of(**TEMPLATE)
    verdict = [str(one) for one in findings(job.spec.roles, body_of(job), "worker", message, causes)]
    assert verdict == [f"{WHERE}{'' if one.startswith(':') else '.'}{one}" for one in found]


def test_a_message_names_a_few_findings_and_counts_the_rest() -> None:
    job = job_of(**TEMPLATE)
    fields = [(f"spec.{letter}", "bad") for letter in "abcde"]
    found = findings(job.spec.roles, body_of(job), "worker", 'Pod "x" is invalid: [...]', fields)
    error = refusal(found)
    assert error.path == f"{WHERE}.spec.a"
    assert error.message == f"bad; {WHERE}.spec.b: bad; {WHERE}.spec.c: bad; and 2 more"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"volumes": [{"name": "d"}, {"name": "convoy-agent"}]}, "volumes[1].name"),
        ({"volumes": [{"name": "convoy-shm"}]}, "volumes[0].name"),
        ({"volumes": [{"name": "convoy-home"}]}, "volumes[0].name"),
        ({"volumes": [{"name": "convoy-data"}]}, None),
        ({"containers": [{**WORKER, "volumeMounts": [{"name": "d", "mountPath": "/var/run/convoy"}]}]}, "m"),
        (
            {"containers": [{**WORKER, "volumeMounts": [{"name": "d", "mountPath": "/var//run/convoy/"}]}]},
            "m",
        ),
        ({"containers": [{**WORKER, "volumeMounts": [{"name": "d", "mountPath": "/run/convoy"}]}]}, "m"),
        ({"containers": [{**WORKER, "volumeMounts": [{"name": "d", "mountPath": "/var/run"}]}]}, None),
        ({"containers": [{**WORKER, "volumeMounts": [{"name": "d", "mountPath": "/dev/shm"}]}]}, None),
    ],
)
def test_template_cannot_use_convoys_volumes_and_paths(spec: dict[str, Any], path: str | None) -> None:
    job = job_of(**spec)
    path = "containers[0].volumeMounts[0].mountPath" if path == "m" else path
    assert [one.path for one in clashes(job)] == ([f"{WHERE}.spec.{path}"] if path else [])
    status = plan(ToyCluster(job).observed(), ToyCluster(job).now).status
    assert status is not None and (status["reason"] == "InvalidSpec") == (path is not None)


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ({"affinity": None}, None),
        ({"affinity": {"nodeAffinity": None}}, {}),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": None}}}, {}),
        ({"affinity": {"podAffinity": {"a": [None, {"b": None}]}}}, {"podAffinity": {"a": [None, {}]}}),
    ],
)
def test_a_running_job_is_not_stalled_by_a_null(spec: dict[str, Any], made: Any) -> None:
    job = job_of(nodeSelector=None, tolerations=None, volumes=None, securityContext=None, **spec)
    body = with_incarnation(body_of(job), 3, {"node-a"})
    affinity = body["spec"]["affinity"]
    (term,) = affinity.pop("nodeAffinity")["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["preference"]["matchFields"][0]["values"] == ["node-a"]
    assert affinity == (made or {})


def test_template_is_dry_run_until_an_incarnation_has_formed() -> None:
    cluster = ToyCluster(job_of(), make_engine())
    first = plan(cluster.observed(), cluster.now)
    tried = [child.name for child in first.creations if child.dry_run]
    assert sorted(tried) == ["job-chief-0", "job-worker-0"], "one of a role"
    cluster.settle()
    assert cluster.job.status.internal.incarnation.spec
    again = plan(replace(cluster.observed(), pods=()), cluster.now)
    assert again.creations and not any(one.dry_run for one in again.creations), (
        "a restart costs no request more"
    )


def test_pods_without_user_fields_are_not_dry_run() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    made = plan(cluster.observed(), cluster.now)
    assert made.creations and not any(one.dry_run for one in made.creations)


def test_rejected_template_is_an_invalid_spec() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    why = {"job-worker-0": Refusal("there is no such field", "spec.roles[0].template.spec.x")}
    made = plan(replace(cluster.observed(), create_errors=why), cluster.now)
    assert made.status is not None
    assert (made.status["phase"], made.status["reason"]) == (Phase.PENDING, "InvalidSpec")
    assert made.status["message"] == "spec.roles[0].template.spec.x: there is no such field"
    assert not made.creations


def test_running_job_survives_a_rejection() -> None:
    cluster = ToyCluster(make_job(), make_engine())
    cluster.settle()
    why = {"job-worker-0": Refusal("there is no such field", "spec.roles[0].template.spec.x")}
    made = plan(replace(cluster.observed(), create_errors=why), cluster.now)
    assert made.deletions == () and (made.status is None or made.status["phase"] != "Pending")
