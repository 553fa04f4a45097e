"""Tests of jobs' pods in namespaces with a Pod Security Standard."""

from __future__ import annotations

from typing import Any
from urllib.error import HTTPError

import pytest

from convoy_controllers.testing.builders import make_job
from convoy_controllers.trainingjob.pods import pod
from convoy_crds.layout import slots

from .conftest import Installation

STANDARD = "pod-security.kubernetes.io/enforce"
PRIVILEGED = {"containers": [{"name": "w", "securityContext": {"privileged": True}}]}
LOW_PORTS = {"capabilities": {"add": ["NET_BIND_SERVICE"]}}
MOUNTS = {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}
HOST_FOLDER = {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]}


def worker(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the first pod of a job whose template has this pod spec."""
    container = {"name": "w", "image": "i", "command": ["x"]}
    own = [{**container, **one} for one in spec.get("containers", [{}])]
    template = {"spec": {**spec, "containers": own}}
    job = make_job(engine=None, roles=[{"name": "worker", "replicas": 1, "template": template}])
    return pod(job, None, slots(job)[0])


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, ""),
        (PRIVILEGED, "privileged"),
        (HOST_FOLDER, "hostPath"),
        ({"hostNetwork": True}, "host namespaces"),
    ],
    ids=["a plain one", "privileged", "a folder of its node", "its node's network"],
)
async def test_a_pod_that_the_namespace_forbids_is_not_created(
    installation: Installation, spec: dict[str, Any], why: str
) -> None:
    message = await refusal(installation, spec, "restricted")
    assert (why in message) if why else (message == "")


async def refusal(installation: Installation, spec: dict[str, Any], standard: str) -> str:
    """Create a pod with this spec in a namespace with the given Pod Security Standard. Return the API
    server's refusal; empty if the pod is accepted.
    """
    namespace = installation.plane.namespace()
    change = {"metadata": {"labels": {STANDARD: standard}}}
    merge = "application/merge-patch+json"
    await installation.call("PATCH", f"/api/v1/namespaces/{namespace}", change, content_type=merge)
    body = worker(spec)
    del body["metadata"]["namespace"], body["metadata"]["ownerReferences"]
    try:
        await installation.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    except HTTPError as error:
        return error.read().decode()
    return ""


@pytest.mark.parametrize(
    ("standard", "spec"),
    [
        ("restricted", {"securityContext": {"runAsUser": 1000}}),
        ("restricted", {"containers": [{"name": "w", "securityContext": LOW_PORTS}]}),
        ("baseline", {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}}),
        ("privileged", PRIVILEGED),
        ("privileged", {"containers": [{"name": "w", "securityContext": MOUNTS}]}),
        ("restricted", {"hostUsers": False}),
    ],
    ids=["a user", "a capability", "root", "privileged", "a capability of root's", "a user namespace"],
)
async def test_settings_of_a_template_do_not_contradict_the_defaults(
    installation: Installation, standard: str, spec: dict[str, Any]
) -> None:
    assert await refusal(installation, spec, standard) == ""


def test_a_worker_has_no_token_for_the_api_server() -> None:
    assert worker({})["spec"]["automountServiceAccountToken"] is False
    requested = {"serviceAccountName": "of-mine", "automountServiceAccountToken": True}
    assert worker(requested)["spec"].items() >= requested.items(), "the pod gets what its job requests"
