"""Tests of admission.experiments: authors who may not create the jobs that Convoy creates for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.crds.experiments import arm, spec

from .conftest import render
from .test_admission import refusal, until_refused
from .test_rendered import collection

EXPERIMENTS = "/apis/convoy.dev/v1alpha1/namespaces/{}/experiments?dryRun=All"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"


def experiment(*kinds: str) -> dict[str, Any]:
    """Return an Experiment with an arm of each of these types, besides two simulations."""
    template = {"template": {"spec": {"roles": []}}, "simulation": None}
    load = {"ServingJob": {"load": {}}}
    more = [
        {
            name: value
            for name, value in arm(
                f"arm{number}", "Naive", type=kind, **template, **load.get(kind, {})
            ).items()
            if value is not None
        }
        for number, kind in enumerate(kinds)
    ]
    body = spec()
    body["arms"] += more
    metadata = {"apiVersion": "convoy.dev/v1alpha1", "kind": "Experiment", "metadata": {"name": "x"}}
    return {**metadata, "spec": body}


def author(control_plane: Any, namespace: str, *plurals: str) -> Any:
    """Return the API server as an author sees it who may only create objects of these kinds."""
    name = "-".join(plurals)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.request("POST", accounts, {"metadata": {"name": name}})
    rule = {"apiGroups": ["convoy.dev"], "resources": [*plurals], "verbs": ["create"]}
    metadata = {"metadata": {"name": name}}
    control_plane.request("POST", f"{RBAC.format(namespace)}/roles", {**metadata, "rules": [rule]})
    binding = {
        **metadata,
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
    }
    control_plane.request("POST", f"{RBAC.format(namespace)}/rolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = control_plane.request("POST", f"{accounts}/{name}/token", request)["status"]["token"]
    return replace(control_plane, token=token)


@pytest.fixture(scope="module")
def namespace(control_plane: Any, helm: Path) -> Iterator[str]:
    """Yield a namespace in which the policy applies."""
    found, made = control_plane.namespace("authors"), []
    chosen = {"matchLabels": {"kubernetes.io/metadata.name": found}}
    values = {"admission": {"experiments": {"enabled": True, "namespaceSelector": chosen}}}
    bodies = [one for one in render(helm, values=values) if one["kind"].startswith("ValidatingAdmission")]
    try:
        for body in bodies:
            control_plane.request("POST", f"{collection(body)}?fieldValidation=Strict", body)
            made.append(f"{collection(body)}/{body['metadata']['name']}")
        yield found
    finally:
        for path in made:
            control_plane.request("DELETE", path)


def test_authors_need_the_rights_to_create_the_jobs_of_their_experiments(
    control_plane: Any, namespace: str
) -> None:
    path = EXPERIMENTS.format(namespace)
    without = author(control_plane, namespace, "experiments")
    words = until_refused(lambda: refusal(without, "POST", path, experiment()))
    assert "you may not create trainingjobs in this namespace" in words
    trains = author(control_plane, namespace, "experiments", "trainingjobs")
    assert refusal(trains, "POST", path, experiment("TrainingJob")) == ""
    words = refusal(trains, "POST", path, experiment("ServingJob"))
    assert "you may not create servingjobs in this namespace" in words
    serves = author(control_plane, namespace, "experiments", "trainingjobs", "servingjobs")
    assert refusal(serves, "POST", path, experiment("ServingJob")) == ""
