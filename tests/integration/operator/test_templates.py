"""Tests of templates on a real API server. Valid templates of a Deployment must be accepted, and errors
must name the job's field.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from convoy.cli.manifest import parse, problems
from convoy_controllers.resources import TRAINING_JOBS
from convoy_controllers.trainingjob.controller import explain
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.layout import slots
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import errors
from convoy_operator.client import KubernetesGateway
from convoy_operator.dry_runs import DryRuns

WORKER: dict[str, Any] = {"name": "worker", "image": "example.com/a:1", "command": ["python", "a.py"]}
DISK = {"name": "d", "emptyDir": {}}


async def tried(gateway: KubernetesGateway, raw: dict[str, Any], pods: list[dict[str, Any]]) -> Any:
    """Return the refusals that the reconciler would get for these pods, by pod."""
    model = TrainingJob.model_validate(raw)

    def explained(body: Any, fault: errors.Invalid) -> Refusal | None:
        return explain(model, body, fault.message, fault.causes)

    return await DryRuns(gateway).refused(raw["metadata"]["namespace"], pods, explained)


def job(spec: Any, metadata: Any = None) -> dict[str, Any]:
    template = {"spec": spec} if metadata is None else {"metadata": metadata, "spec": spec}
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": f"j-{secrets.token_hex(4)}"},
        "spec": {"roles": [{"name": "worker", "replicas": 1, "template": template}]},
    }


def container(**changes: Any) -> dict[str, Any]:
    return {"containers": [{**WORKER, **changes}]}


def spec(**changes: Any) -> dict[str, Any]:
    return {"containers": [WORKER], **changes}


@pytest.fixture(scope="module")
def namespace(control_plane: Any) -> str:
    return str(control_plane.namespace("templates"))


NULLS = [
    spec(nodeSelector=None, tolerations=None, volumes=None, securityContext=None, initContainers=None),
    container(env=None, volumeMounts=None, securityContext=None, args=None, resources=None, ports=None),
    spec(affinity=None, terminationGracePeriodSeconds=None, imagePullSecrets=None, hostNetwork=None),
    spec(affinity={"nodeAffinity": None, "podAntiAffinity": {}}),
    spec(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": None}}),
    container(env=[{"name": "A", "value": None}, {"name": "B", "value": "b", "valueFrom": None}]),
    container(args=["--flag", None]),
    container(name=None),
    container(securityContext={"capabilities": None, "runAsUser": None}),
    container(securityContext={"capabilities": {"add": None, "drop": ["ALL"]}}),
    container(resources={"limits": {"cpu": None, "memory": "1Gi"}, "requests": None}),
    container(resources={"limits": {"cpu": 0.5, "memory": 1073741824}}),
    container(livenessProbe={"exec": {"command": ["true"]}, "httpGet": None}),
    spec(nodeSelector={"disk": None}),
    spec(volumes=[{"name": "d", "emptyDir": {"sizeLimit": None}, "hostPath": None}]),
    spec(securityContext={"seccompProfile": None, "runAsNonRoot": None}),
]


@pytest.mark.parametrize("template", NULLS, ids=json.dumps)
async def test_nulls_are_treated_as_omitted_fields_as_in_a_deployment(
    control_plane: Any, gateway: KubernetesGateway, namespace: str, template: dict[str, Any]
) -> None:
    body = job(template, {"creationTimestamp": None, "labels": None, "annotations": {"note": None}})
    assert problems(parse(body), []) == []
    path = f"/apis/convoy.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{body['metadata']['name']}"
    applied = f"{path}?fieldManager=test&fieldValidation=Strict&dryRun=All"
    await asyncio.to_thread(control_plane.request, "PATCH", applied, body, "application/apply-patch+yaml")
    raw = await gateway.create(TRAINING_JOBS, namespace, body)
    model = TrainingJob.model_validate(raw)
    made = pod(model, None, slots(model)[0])
    assert await tried(gateway, raw, [made]) == {}


AT_THE_DOOR = [
    (container(env={"A": "b"}), "containers[0].env"),
    (container(env=[{"name": "A", "value": 1}]), "containers[0].env[0].value"),
    (container(env=[{"name": "A", "value": True}]), "containers[0].env[0].value"),
    (container(env=[None]), "containers[0].env[0]"),
    (container(env=["A=b"]), "containers[0].env[0]"),
    (container(env=[{"value": "b"}]), "containers[0].env[0].name"),
    (container(env=[{"name": "A", "valueFrom": "secret"}]), "containers[0].env[0].valueFrom"),
    (container(volumeMounts=[{"name": "d", "path": "/d"}]), "containers[0].volumeMounts[0].mountPath"),
    (container(volumeMounts={"d": "/d"}), "containers[0].volumeMounts"),
    (container(volumeMounts=["/d"]), "containers[0].volumeMounts[0]"),
    (container(command="python a.py"), "containers[0].command"),
    (container(args="--steps 5"), "containers[0].args"),
    (container(args=["--steps", 5]), "containers[0].args[1]"),
    (container(image=5), "containers[0].image"),
    (container(name="My_Worker"), "containers[0].name"),
    (container(resources=[]), "containers[0].resources"),
    (container(resources={"limits": ["cpu"]}), "containers[0].resources.limits"),
    (container(securityContext=[]), "containers[0].securityContext"),
    (container(securityContext={"privileged": "yes"}), "containers[0].securityContext.privileged"),
    (container(securityContext={"capabilities": ["ALL"]}), "containers[0].securityContext.capabilities"),
    (container(securityContext={"capabilities": {"add": "ALL"}}), "securityContext.capabilities.add"),
    (spec(containers=None), "containers[0].image"),
    (spec(containers=[]), "containers[0].image"),
    (spec(containers=[WORKER, None]), "containers[1]"),
    (spec(containers={"worker": WORKER}), "containers"),
    (spec(initContainers={"name": "a"}), "initContainers"),
    (spec(initContainers=["fetch"]), "initContainers[0]"),
    (spec(terminationGracePeriodSeconds="60s"), "terminationGracePeriodSeconds"),
    (spec(terminationGracePeriodSeconds="60"), "terminationGracePeriodSeconds"),
    (spec(terminationGracePeriodSeconds=-1), "terminationGracePeriodSeconds"),
    (spec(securityContext=[]), "securityContext"),
    (spec(securityContext={"runAsUser": "root"}), "securityContext.runAsUser"),
    (spec(nodeSelector=["disk"]), "nodeSelector"),
    (spec(nodeSelector={"gpu": True}), "nodeSelector.gpu"),
    (spec(tolerations={"key": "gpu"}), "tolerations"),
    (spec(tolerations=[None]), "tolerations[0]"),
    (spec(volumes={}), "volumes"),
    (spec(volumes=[{"emptyDir": {}}]), "volumes[0].name"),
    (spec(affinity=[]), "affinity"),
    (spec(affinity={"nodeAffinity": []}), "affinity.nodeAffinity"),
]


@pytest.mark.parametrize(("template", "path"), AT_THE_DOOR, ids=lambda value: json.dumps(value)[:70])
async def test_types_of_fields_that_convoy_uses_are_checked_at_admission(
    gateway: KubernetesGateway, namespace: str, template: Any, path: str
) -> None:
    body = job(template)
    with pytest.raises(errors.Invalid) as refused:
        await gateway.dry_run(TRAINING_JOBS, namespace, body)
    assert path in refused.value.message, refused.value.message
    offline = problems(parse(body), [])
    assert any(path in one for one in offline), offline


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"labels": {"version": 1}}, "metadata.labels.version"),
        ({"labels": ["a"]}, "metadata.labels"),
        ({"annotations": {"on": True}}, "metadata.annotations.on"),
        ({"label": {"a": "b"}}, "metadata.label"),
    ],
)
async def test_labels_and_annotations_are_checked_at_admission(
    gateway: KubernetesGateway, namespace: str, metadata: Any, path: str
) -> None:
    body = job(spec(), metadata)
    with pytest.raises(errors.Invalid) as refused:
        await gateway.dry_run(TRAINING_JOBS, namespace, body)
    assert path in refused.value.message
    assert any(path in one for one in problems(parse(body), []))


BY_DRY_RUN = [
    (container(volumeMount=[]), "containers[0].volumeMount", "there is no such field"),
    (container(resource={}), "containers[0].resource", "there is no such field"),
    (spec(nodeselector={"a": "b"}), "nodeselector", "there is no such field"),
    (container(resources={"limits": {"cpu": "lots"}}), "containers[0].resources.limits.cpu", "a quantity"),
    (spec(volumes=[{"name": "d", "emptyDir": {"sizeLimit": "1 GB"}}]), "emptyDir.sizeLimit", "a quantity"),
    (container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}), "resources.requests", "less"),
    (spec(tolerations=[{"key": 5}]), "tolerations[0].key", "must be text, is a number: put it in quotes"),
    (spec(affinity={"podAntiAffinity": []}), "affinity.podAntiAffinity", "is a list"),
    (spec(topologySpreadConstraints={}), "topologySpreadConstraints", "must be a list, is an object"),
    (spec(hostNetwork="yes"), "hostNetwork", "must be true or false, is text"),
    (spec(priority=5.5), "priority", "must be a whole number, is 5.5"),
    (spec(dnsPolicy="x"), "dnsPolicy", "Unsupported value"),
    (
        spec(ephemeralContainers=[{"name": "e", "image": "x"}]),
        "ephemeralContainers",
        "cannot be set on create",
    ),
    (spec(imagePullSecrets=["registry"]), "imagePullSecrets[0]", "is text"),
    (spec(volumes=[{"name": "d", "hostPath": "/x"}]), "volumes[0].hostPath", "is text"),
    (spec(volumes=[DISK, DISK]), "volumes[1].name", "Duplicate value"),
    (spec(containers=[WORKER, WORKER]), "containers[1].name", "Duplicate value"),
    (spec(containers=[WORKER, {"name": "logs"}]), "containers[1].image", "Required value"),
    (spec(initContainers=[{"name": "fetch"}]), "initContainers[0].image", "Required value"),
    (
        spec(initContainers=[{"name": "a", "image": "x", "env": {}}]),
        "initContainers[0].env",
        "must be a list",
    ),
    (container(volumeMounts=[{"name": "d", "mountPath": "/d"}]), "volumeMounts[0].name", "Not found"),
    (
        spec(volumes=[DISK], **container(volumeMounts=[{"name": "d", "mountPath": "/d"}] * 2)),
        "containers[0].volumeMounts[1].mountPath",
        "must be unique",
    ),
    # The API server drops the first variable, so the error's index in the pod differs from the index in the
    # template.
    (
        container(env=[{"name": "CONVOY_SOCKET", "value": "x"}, {"name": "=", "value": "x"}]),
        "containers[0].env[1].name",
        "",
    ),
    (container(livenessProbe={"httpGet": {"port": []}}), "livenessProbe.httpGet.port", "is a list"),
    (container(ports=[{"containerPort": "http"}]), "ports[0].containerPort", "must be a whole number"),
    (container(imagePullPolicy="always"), "containers[0].imagePullPolicy", "Unsupported value"),
    (spec(securityContext={"runAsUser": -5}), "securityContext.runAsUser", "must be between"),
    (spec(nodeSelector={"a b": "c"}), "nodeSelector", "a b"),
]


@pytest.mark.parametrize(("template", "path", "words"), BY_DRY_RUN, ids=lambda value: json.dumps(value)[:60])
async def test_other_fields_are_checked_by_a_dry_run_of_the_pod(
    gateway: KubernetesGateway, namespace: str, template: Any, path: str, words: str
) -> None:
    raw = await gateway.create(TRAINING_JOBS, namespace, job(template))
    model = TrainingJob.model_validate(raw)
    made = pod(model, None, slots(model)[0])
    (refusal,) = (await tried(gateway, raw, [made])).values()
    assert refusal.path.startswith("spec.roles[0].template.spec.") and refusal.path.endswith(path), refusal
    assert words in refusal.message


async def test_a_temporary_rejection_is_not_an_invalid_template(
    gateway: KubernetesGateway, namespace: str
) -> None:
    raw = await gateway.create(TRAINING_JOBS, namespace, job(spec(priorityClassName="none")))
    model = TrainingJob.model_validate(raw)
    (refusal,) = (await tried(gateway, raw, [pod(model, None, slots(model)[0])])).values()
    assert refusal.path == "" and "no PriorityClass with name none" in refusal.message


WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture
async def guarded(control_plane: Any) -> AsyncIterator[str]:
    """The name of a namespace whose pods need a webhook that does not run."""
    namespace = control_plane.namespace("guarded")
    created = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": "pods.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/pods"},
        "rules": [created],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [webhook],
    }
    await asyncio.to_thread(control_plane.request, "POST", WEBHOOKS, body)
    yield namespace
    await asyncio.to_thread(control_plane.raw, f"{WEBHOOKS}/{namespace}", "DELETE")


async def test_an_unavailable_webhook_is_named(gateway: KubernetesGateway, guarded: str) -> None:
    raw = await gateway.create(TRAINING_JOBS, guarded, job(spec()))
    model = TrainingJob.model_validate(raw)
    made = pod(model, None, slots(model)[0])
    async with asyncio.timeout(30):
        # Wait, because the API server needs a moment to load a webhook.
        while not (refused := await tried(gateway, raw, [made])):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    (refusal,) = refused.values()
    assert refusal.path == "" and 'failed calling webhook "pods.example.com"' in refusal.message


@pytest.fixture
async def deep(control_plane: Any) -> AsyncIterator[str]:
    """The name of a namespace with a job that is nested deeper than orjson can decode, and with a normal
    job.
    """
    namespace = control_plane.namespace("deep")
    path = f"/apis/convoy.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
    body = job(container(extra="@"))
    text = json.dumps(body).replace('"@"', '{"a":[' * 2000 + "1" + "]}" * 2000)
    await asyncio.to_thread(control_plane.raw, path, "POST", text.encode())
    await asyncio.to_thread(
        control_plane.request, "POST", path, {**job(spec()), "metadata": {"name": "flat"}}
    )
    yield namespace
    for name in (body["metadata"]["name"], "flat"):
        await asyncio.to_thread(control_plane.raw, f"{path}/{name}", "DELETE")


async def test_an_unparsable_job_does_not_hide_other_jobs(gateway: KubernetesGateway, deep: str) -> None:
    found, _ = await gateway.list(TRAINING_JOBS)
    mine = {one["metadata"]["name"]: one for one in found if one["metadata"]["namespace"] == deep}
    assert len(mine) == 2
    TrainingJob.model_validate(mine.pop("flat"))
    (buried,) = mine.values()
    with pytest.raises(ValueError, match="more than 64 levels"):
        TrainingJob.model_validate(buried)
