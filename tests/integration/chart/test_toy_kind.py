"""Tests that generated files add a kind, which only tests use, to the chart: roles, rights and admission
policy.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.unit.crds.toyserver import KIND

from convoy_crds import generate

from .conftest import CHART, Bodies, one, render
from .test_admission import PRIVILEGED, refusal, until_refused
from .test_rendered import collection

NAME = "convoy-toyservers"


@pytest.fixture(scope="module")
def bodies(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Bodies:
    """Return the objects of a chart that has the toy kind's files and a setting for its policy."""
    chart = tmp_path_factory.mktemp("chart") / "convoy"
    shutil.copytree(CHART, chart)
    for path, text in generate.rendered([KIND]).items():
        if path.is_relative_to(generate.CHART):
            (chart / "files" / path.relative_to(generate.CHART)).write_text(text)
    schema = json.loads((chart / "values.schema.json").read_text())
    settings = schema["properties"]["admission"]["properties"]
    settings["toyServers"] = settings["trainingJobs"]
    (chart / "values.schema.json").write_text(json.dumps(schema))
    values = {"admission": {"toyServers": {"enabled": True}}, "dashboard": {"enabled": True}}
    return render(helm, values=values, chart=chart)


def test_users_and_the_dashboard_get_rights_for_the_kind(bodies: Bodies) -> None:
    assert one(bodies, "CustomResourceDefinition", KIND.crd)
    for name in ("viewer", "editor"):
        (objects, _) = one(bodies, "ClusterRole", f"{NAME}-{name}")["rules"]
        assert objects["resources"] == [KIND.plural]
    watched = one(bodies, "ClusterRole", "convoy-dashboard")["rules"][0]
    assert KIND.plural in watched["resources"] and watched["verbs"] == ["list", "watch"]


@pytest.fixture
def toys(control_plane: Any, bodies: Bodies) -> Iterator[str]:
    """Yield the path of toys in a namespace, when the API server has the kind and applies its policy."""
    crd = one(bodies, "CustomResourceDefinition", KIND.crd)
    policy = one(bodies, "ValidatingAdmissionPolicy", NAME)
    binding = one(bodies, "ValidatingAdmissionPolicyBinding", NAME)
    namespace = control_plane.namespace("toys")
    path = f"/apis/{KIND.api_version}/namespaces/{namespace}/{KIND.plural}"
    made = []
    try:
        control_plane.request("POST", f"{collection(crd)}?fieldValidation=Strict", crd)
    except HTTPError as error:
        # The operator's tests use the same API server and do not delete the definition, so it may exist.
        if error.code != 409:
            raise
    try:
        for body in (policy, binding):
            control_plane.request("POST", f"{collection(body)}?fieldValidation=Strict", body)
            made.append(f"{collection(body)}/{body['metadata']['name']}")

        def held() -> str:
            """Return the policy's error message; an empty text if the policy is not active yet."""
            words = refusal(control_plane, "POST", f"{path}?dryRun=All", toy({"hostPID": True}))
            return words if "hostPID" in words else ""

        until_refused(held)
        yield path
    finally:
        for one_path in made:
            control_plane.request("DELETE", one_path)


def toy(pod: dict[str, Any] | None) -> dict[str, Any]:
    """Return a toy whose pod template has this pod spec. Without a pod spec it has no template."""
    spec = {"replicas": 1} if pod is None else {"replicas": 1, "template": {"spec": pod}}
    return {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": {"name": "toy"}, "spec": spec}


def test_admission_rules_apply_to_pods_of_the_kind(control_plane: Any, toys: str) -> None:
    refused = partial(refusal, control_plane, "POST", f"{toys}?dryRun=All")
    container = {"name": "server", "image": "i"}
    assert "hostPath volumes are not allowed for jobs" in refused(
        toy({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})
    )
    assert "privileged containers are not allowed" in refused(
        toy({"containers": [{**container, **PRIVILEGED}]})
    )
    assert "serviceAccountName is not allowed" in refused(toy({"serviceAccountName": "admin"}))
    assert refused(toy({"containers": [container]})) == "" == refused(toy(None))
