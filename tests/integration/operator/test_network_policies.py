"""Tests of the NetworkPolicies of jobs on a real API server: it accepts them, and the operator keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Installation, eventually, running
from .test_operator import JOBS, job

POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
SERVERS = "/apis/convoy.dev/v1alpha1/namespaces/{}/servingjobs"
TRAINING, SERVING, CLIENTS = "trainingjob-twin", "servingjob-twin", "servingjob-twin.clients"


def server(name: str) -> dict[str, Any]:
    ready = {"tcpSocket": {"port": 8080}}
    container = {"name": "a", "image": "a", "command": ["a"], "readinessProbe": ready}
    role = {"name": "server", "template": {"spec": {"containers": [container]}}}
    head = {"apiVersion": "convoy.dev/v1alpha1", "kind": "ServingJob", "metadata": {"name": name}}
    return {**head, "spec": {"roles": [role], "service": {"type": "NodePort"}}}


async def test_the_api_server_stores_the_policies_of_both_kinds(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = installation.plane.namespace()

    async def found() -> dict[str, Any]:
        items = (await installation.call("GET", POLICIES.format(space)))["items"]
        return {one["metadata"]["name"]: one for one in items}

    async def has(*names: str) -> bool:
        return set(await found()) == set(names)

    async with running(installation, monkeypatch, network_policies=1):
        await installation.call("POST", JOBS.format(space), job("twin"))
        await installation.call("POST", SERVERS.format(space), server("twin"))
        await eventually(lambda: has(TRAINING, SERVING, CLIENTS), what="policies of both jobs")
        stored = await found()
        operator = stored[TRAINING]["spec"]["ingress"][1]["from"][0]["namespaceSelector"]["matchLabels"]
        assert operator == {"kubernetes.io/metadata.name": installation.namespace}
        assert stored[CLIENTS]["spec"]["ingress"] == [{"ports": [{"port": 8080, "protocol": "TCP"}]}]
        owners = {name: one["metadata"]["ownerReferences"][0]["kind"] for name, one in stored.items()}
        assert owners == {TRAINING: "TrainingJob", SERVING: "ServingJob", CLIENTS: "ServingJob"}

        # Someone deletes a policy and changes another. The operator restores both.
        await installation.call("DELETE", f"{POLICIES.format(space)}/{CLIENTS}")
        await eventually(lambda: has(TRAINING, SERVING, CLIENTS), what="the deleted policy again")
        open_rule = {"spec": {"ingress": [{}]}}
        await installation.call(
            "PATCH",
            f"{POLICIES.format(space)}/{TRAINING}",
            open_rule,
            content_type="application/merge-patch+json",
        )

        async def restored() -> bool:
            return bool((await found())[TRAINING]["spec"] == stored[TRAINING]["spec"])

        await eventually(restored, what="the changed policy as before")
    async with running(installation, monkeypatch):
        await eventually(has, what="no policies after the setting was removed")
