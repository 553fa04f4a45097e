"""Tests of a toy kind on a real API server: its CRD, its permissions and its child Service."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.unit.crds.toyserver import KIND
from tests.unit.operator.toycontroller import CONTROLLER, service

from convoy_controllers.children import Apply
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.plan import Plan
from convoy_controllers.resources import SERVICES, resource_of
from convoy_controllers.rights import rules
from convoy_crds.generate import definition

from .conftest import Installation, eventually, running

WITH_TOY = (*CONTROLLERS, CONTROLLER)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def installed(installation: Installation) -> None:
    """Create the CRD, and give the operator the permissions that the kind's controller needs."""
    name = f"toy-{installation.namespace}"
    role = {"metadata": {"name": name}, "rules": rules(WITH_TOY)}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [
            {"kind": "ServiceAccount", "name": "convoy-operator", "namespace": installation.namespace}
        ],
    }
    with contextlib.suppress(HTTPError):
        await installation.call("POST", CRDS, definition(KIND))
    await installation.call("POST", f"{RBAC}/clusterroles", role)
    await installation.call("POST", f"{RBAC}/clusterrolebindings", binding)
    await eventually(lambda: _served(installation), what="the kind is served")


async def _served(installation: Installation) -> bool:
    found = await installation.call("GET", f"{CRDS}/{KIND.crd}")
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


async def _found(installation: Installation, path: str) -> dict[str, Any]:
    try:
        return await installation.call("GET", path)
    except HTTPError as error:
        if error.code != 404:
            raise
        return {}


async def test_fields_missing_from_an_intent_are_removed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    await installed(installation)
    toys, services = resource_of(KIND).path(installation.namespace), SERVICES.path(installation.namespace)
    labels: dict[str, str] = {"a": "b"}

    def plan(observed: Any, now: datetime) -> Plan:
        manifest = service(observed.server)
        manifest["metadata"]["labels"] = dict(labels)
        return Plan(children=(Apply(SERVICES, manifest),))

    labelled = (*CONTROLLERS, replace(CONTROLLER, plan=plan))
    async with running(installation, monkeypatch, controllers=labelled):
        body = {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": {"name": "bare"}, "spec": {}}
        await installation.call("POST", toys, body)

        async def labels_of() -> set[str]:
            found = await _found(installation, f"{services}/bare")
            return set(found.get("metadata", {}).get("labels", ()))

        async def made() -> bool:
            return "a" in await labels_of()

        async def bare() -> bool:
            return "a" not in await labels_of()

        await eventually(made, what="the Service is there")
        labels.clear()
        change = {"spec": {"replicas": 3}}
        await installation.call("PATCH", f"{toys}/bare", change, content_type="application/merge-patch+json")
        await eventually(bare, what="the label is removed")


async def test_a_service_is_created_repaired_and_deleted(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    await installed(installation)
    namespace = installation.namespace
    toys, services = resource_of(KIND).path(namespace), SERVICES.path(namespace)
    async with running(installation, monkeypatch, controllers=WITH_TOY):
        body = {
            "apiVersion": KIND.api_version,
            "kind": KIND.name,
            "metadata": {"name": "toy"},
            "spec": {"replicas": 2},
        }
        made = await installation.call("POST", toys, body)

        async def served() -> bool:
            found = await _found(installation, f"{services}/toy")
            owners = found.get("metadata", {}).get("ownerReferences", [])
            return bool(owners) and owners[0]["uid"] == made["metadata"]["uid"]

        await eventually(served, what="the Service is there")

        async def stored() -> bool:
            found = await _found(installation, f"{toys}/toy")
            # The operator stores the status after it has made the Service.
            return bool(found.get("status", {}).get("replicas") == 2)

        await eventually(stored, what="the status is stored")
        merge = "application/merge-patch+json"
        edit = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me", "mine": "kept"}}}
        for change in ({"spec": {"selector": {"toy": "another"}}}, edit):
            await installation.call("PATCH", f"{services}/toy", change, content_type=merge)

            async def put_back() -> bool:
                found = await _found(installation, f"{services}/toy")
                managed = found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "convoy-operator"
                return managed and bool(found["spec"]["selector"] == {"toy": "toy"})

            await eventually(put_back, what="the Service is put back")
        labels = (await _found(installation, f"{services}/toy"))["metadata"]["labels"]
        assert labels["mine"] == "kept", "fields that nobody changed are not applied again"
        await installation.call("DELETE", f"{services}/toy")
        await eventually(served, what="the Service is made again")
        change = {"spec": {"replicas": 0}}
        await installation.call("PATCH", f"{toys}/toy", change, content_type=merge)

        async def deleted() -> bool:
            return not await _found(installation, f"{services}/toy")

        await eventually(deleted, what="the Service is deleted")
