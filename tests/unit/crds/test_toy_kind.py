"""Tests that a kind is added by one file of models and one entry in a list, because Convoy derives
everything else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.crds import toyserver

from convoy.cli.manifest import Manifest, is_convoy_object, parse, problems
from convoy.client import Client
from convoy.client.api import Api
from convoy.client.collection import Writable
from convoy_crds import generate, reference
from convoy_crds.admission import VALIDATIONS, admission
from convoy_crds.generate import definition
from convoy_crds.kinds import KINDS
from convoy_crds.roles import roles

KIND = toyserver.KIND
WITH_TOY = (*KINDS, KIND)
FILES = Path("charts") / "convoy" / "files"


def added(files: dict[Path, str], before: dict[Path, str]) -> set[str]:
    """Return the paths of the files that were added. Assert that no other file has changed."""
    assert before.items() <= files.items()
    return {str(path.relative_to(reference.ROOT)) for path in files.keys() - before.keys()}


def test_the_api_server_gets_a_definition() -> None:
    spec = definition(KIND)["spec"]
    assert spec["names"]["kind"] == "ToyServer" and spec["names"]["shortNames"] == ["toy"]
    assert spec["scope"] == "Namespaced"
    (version,) = spec["versions"]
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
    }
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Replicas", "Age"]
    assert (
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["replicas"]["maximum"] == 10
    )


def test_only_the_files_of_the_kind_are_added_to_the_chart() -> None:
    files = generate.rendered(WITH_TOY)
    assert added(files, generate.rendered()) == {
        "crds/toyservers.yaml",
        str(FILES / "crds" / "toyservers.yaml"),
        str(FILES / "roles" / "toyservers.yaml"),
        str(FILES / "admission" / "toyservers.yaml"),
    }
    text = files[reference.ROOT / FILES / "roles" / "toyservers.yaml"]
    assert yaml.safe_load(text) == {"roles": roles(KIND)}


def test_users_get_a_view_role_and_an_edit_role() -> None:
    viewer, editor = roles(KIND)
    assert viewer["name"] == "toyservers-viewer" and viewer["aggregateTo"] == ["view", "edit", "admin"]
    assert editor["name"] == "toyservers-editor" and editor["aggregateTo"] == ["edit", "admin"]
    objects, status = editor["rules"]
    assert objects["apiGroups"] == ["convoy.dev"] and objects["resources"] == ["toyservers"]
    assert {"get", "list", "watch", "create", "patch", "delete"} <= set(objects["verbs"])
    assert status == {"apiGroups": ["convoy.dev"], "resources": ["toyservers/status"], "verbs": ["get"]}


def test_admission_applies_every_rule_to_pods_of_the_kind() -> None:
    found = admission(KIND)
    assert found["values"] == "toyServers"
    assert found["resource"] == {"group": "convoy.dev", "version": "v1alpha1", "plural": "toyservers"}
    assert found["changed"] == "object.spec.?template != oldObject.spec.?template"
    pods = found["variables"][0]
    assert pods["name"] == "pods" and pods["expression"].startswith("[object.spec].map(r, dyn(r))")
    assert [one["expression"] for one in found["validations"]] == [rule for rule, _ in VALIDATIONS]


class Nothing:
    """A fake connection that does nothing."""

    class configuration:
        host = "https://nowhere"


def test_the_client_has_the_objects_of_the_kind() -> None:
    connection: Any = Nothing()
    client = Client(api=Api(connection, "team"), kinds=WITH_TOY)
    by_name: Any = vars(client)["toy_servers"]
    typed: Writable[toyserver.ToyServer] = client.collection(KIND)
    for found in (by_name, typed):
        assert isinstance(found, Writable) and found._kind is KIND
    assert set(vars(client)) - {"api"} == {kind.attribute for kind in WITH_TOY}


def manifest(**spec: Any) -> Manifest:
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "ToyServer",
        "metadata": {"name": "toy"},
        "spec": spec,
    }
    return parse(body, kinds=WITH_TOY)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": 2}, []),
        ({"replicas": 11}, ["ToyServer toy: spec.replicas: must be at most 10, is 11"]),
        ({"replica": 2}, ["ToyServer toy: spec.replica: there is no such field; did you mean 'replicas'?"]),
        ({"replicas": 6}, ["ToyServer toy: spec.replicas: replicas must not exceed mostReplicas"]),
    ],
    ids=["good", "bound", "field", "rule"],
)
def test_a_manifest_is_checked(spec: dict[str, Any], words: list[str]) -> None:
    found = manifest(**spec)
    assert problems(found, [found]) == words


def test_a_manifest_without_a_version_is_known_by_its_kind() -> None:
    assert is_convoy_object({"kind": "ToyServer"}, WITH_TOY) and not is_convoy_object({"kind": "ToyServer"})


def test_the_reference_gets_a_page_and_a_navigation_entry() -> None:
    before, files = reference.rendered(), reference.rendered(WITH_TOY)
    page = files[reference.FOLDER / "toyserver.md"]
    assert "`kubectl get toyservers`, short `toy`" in page
    assert "| `spec.replicas` | integer, 0 to 10 | `1` | Number of server pods. |" in page
    index = files[reference.FOLDER / "index.md"]
    assert "| [ToyServer](toyserver.md) | Namespaced | A toy server behind a Service. |" in index
    entry = "      - ToyServer: reference/toyserver.md\n"
    assert files[reference.SITE].replace(entry, "") == before[reference.SITE]
    assert entry in files[reference.SITE]
