"""Tests that repeated applies of one file change nothing, for all ways in which users and tools apply
files.

Nothing changes if the metadata generation stays the same, a repeated apply writes nothing, `kubectl diff`
is empty and no manager gets a conflict. Argo CD compares lists as a whole. Client-side apply does the same
before it reports `unchanged`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.conftest import binaries
from tests.integration.crds.test_schema import EXAMPLES, MERGE, path, refusal

from convoy_crds.kinds import KINDS
from convoy_crds.meta import API_VERSION
from convoy_workloads.engines.catalogue import catalogue

APPLY = "application/apply-patch+yaml"
HARMLESS = ("last-applied-configuration", "deleting cluster-scoped resources")


def document(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def job(name: str, template: Any = None, params: Any = None, **spec: Any) -> dict[str, Any]:
    role = {"replicas": 2, "name": "worker", **({} if template is None else {"template": template})}
    engine = {"name": "gpt", **({} if params is None else {"params": params})}
    return document("TrainingJob", name, **{"engine": engine, "roles": [role], **spec})


CONTAINER = {
    "image": "x",
    "command": ["python", "train.py"],
    "env": [{"name": "B", "value": "1"}, {"name": "A", "value": ""}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 1}},
    "ports": [{"containerPort": 8080}],
}
POD = {
    "containers": [CONTAINER, {"name": "sidecar", "image": "y"}],
    "initContainers": [{"name": "init", "image": "z"}],
    "tolerations": [{"operator": "Exists"}],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "nodeSelector": {"pool": "a"},
    "imagePullSecrets": [{"name": "registry"}],
}
NUMBERS = {
    "whole": 1.0,
    "small": 1e-3,
    "tiny": 1e-300,
    "huge": 2**63 - 1,
    "beyond": 2**64,
    "text": "1.0",
    "yes": True,
    "z": {"b": [1, 2.5, {"c": []}], "a": {}},
    "lists": [[], [[1]], [{}]],
}
FILES: list[dict[str, Any]] = [
    job(
        "empty-maps", {"spec": {}}, {}, recovery={}, guard={}, checkpoint={"tiers": {"local": {}, "peer": {}}}
    ),
    job("empty-template", {}),
    job("empty-lists", {"metadata": {"labels": {}}, "spec": {"containers": [], "tolerations": []}}),
    job("nothing-in-containers", {"spec": {"containers": [{}]}}),
    job("numbers", None, NUMBERS),
    job("own-image", {"spec": POD}),
    job("said", None, None, suspend=False, success="AllRolesComplete", recovery={"inPlace": True}),
    job("hours", None, None, checkpoint={"interval": "60m", "tiers": {"local": {"memory": "1024Mi"}}}),
    job("7.digits-and.dots", {"metadata": {"annotations": {"a/b": "c"}}}),
    document("GuardPolicy", "empty", selector={}, sweeps={}, repair={"ladder": [{"action": "Reset"}]}),
    document("HealthSweep", "named", nodes=["b", "a"]),
    document("CheckpointStore", "volume", volume={"claimName": "c"}, allowedNamespaces=["b", "a"]),
    document("Engine", "own", image="x", command=["a"], paramsSchema={}, metrics=[{"name": "m"}]),
    *(entry.to_dict() for entry in catalogue().values()),
]
NULLS = [
    job("null-parts", None, None, recovery=None, guard=None, checkpoint=None, suspend=None, managedBy=None),
    job("null-tiers", None, None, checkpoint={"interval": "5m", "tiers": {"local": {}, "peer": None}}),
    job("null-template", {"metadata": None, "spec": None}),
    job("null-fields", {"spec": {"nodeSelector": None, "containers": [{"env": None}]}}),
    job("null-params", None, {"a": None}),
]


def _plain(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest as it stands in a file: without status, and with only the name in its metadata."""
    bare = {key: value for key, value in manifest.items() if key != "status"}
    return {**bare, "metadata": {"name": manifest["metadata"]["name"]}}


class Repository:
    """A folder of manifests, and a kubectl that applies them."""

    def __init__(self, control_plane: Any, folder: Path, manifests: list[dict[str, Any]]) -> None:
        self._plane, self._folder = control_plane, folder
        self._namespace = control_plane.namespace("gitops")
        self._program = [str(binaries() / "kubectl"), f"--kubeconfig={control_plane.kubeconfig()}"]
        self.manifests = manifests
        for number, manifest in enumerate(manifests):
            (folder / f"{number}.json").write_text(json.dumps(manifest))

    def kubectl(self, verb: str, *options: str) -> str:
        """Run kubectl and return stdout. Raises AssertionError for an error, a difference or a warning."""
        made = subprocess.run(
            [*self._program, verb, "-n", self._namespace, "-f", str(self._folder), *options],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        warnings = [line for line in made.stderr.splitlines() if not any(one in line for one in HARMLESS)]
        assert (made.returncode, warnings) == (0, []), made.stdout
        return made.stdout

    def versions(self) -> dict[str, tuple[int, str]]:
        """Return the metadata generation and the resource version of each object in the folder."""
        found = {}
        for kind in KINDS:
            where = f"/namespaces/{self._namespace}" if kind.scope == "Namespaced" else ""
            listed = self._plane.request("GET", f"/apis/{API_VERSION}{where}/{kind.plural}")
            for one in listed["items"]:
                meta = one["metadata"]
                found[f"{kind.name}/{meta['name']}"] = meta["generation"], meta["resourceVersion"]
        names = {f"{one['kind']}/{one['metadata']['name']}" for one in self.manifests}
        return {name: version for name, version in found.items() if name in names}

    def generations(self) -> set[int]:
        return {generation for generation, _ in self.versions().values()}

    def assert_nothing_left_to_apply(self, *options: str) -> None:
        """Assert that a repeated apply writes nothing and that `kubectl diff` is empty."""
        before = self.versions()
        self.kubectl("apply", *options)
        assert self.versions() == before
        assert self.kubectl("diff", *options) == ""


@pytest.fixture(scope="module")
def manifests() -> list[dict[str, Any]]:
    """Return all examples and test files of every kind. Each object occurs once."""
    examples = [one for file in EXAMPLES for one in yaml.safe_load_all(file.read_text())]
    found = [*(one for one in examples if one.get("apiVersion") == API_VERSION), *map(_plain, FILES)]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    return list(named.values())


@pytest.fixture
def repository(control_plane: Any, tmp_path: Path) -> Iterator[Callable[..., Repository]]:
    """Yield a function that creates repositories. At the end delete the applied objects, because some of
    them are cluster-wide.
    """
    made: list[Repository] = []

    def make(manifests: list[dict[str, Any]]) -> Repository:
        made.append(Repository(control_plane, tmp_path, manifests))
        return made[-1]

    yield make
    for one in made:
        one.kubectl("delete", "--wait=false", "--ignore-not-found")


SERVER = ("--server-side",)
ARGO = (*SERVER, "--field-manager=argocd-controller")


def test_a_repeated_apply_in_any_way_changes_nothing(
    repository: Callable[..., Repository], manifests: list[dict[str, Any]]
) -> None:
    applied = repository(manifests)
    applied.kubectl("apply")
    output = applied.kubectl("apply").splitlines()
    assert [line for line in output if not line.endswith(" unchanged")] == []
    for options in (SERVER, ARGO, ()):
        applied.kubectl("apply", *options)
        applied.assert_nothing_left_to_apply(*options)
    assert applied.generations() == {1}


def test_a_file_that_the_server_applied_first_changes_nothing(
    repository: Callable[..., Repository], manifests: list[dict[str, Any]]
) -> None:
    applied = repository(manifests)
    for options in (ARGO, SERVER):
        applied.kubectl("apply", *options)
        applied.assert_nothing_left_to_apply(*options)
    assert applied.generations() == {1}


def test_client_side_apply_omits_nulls(repository: Callable[..., Repository]) -> None:
    applied = repository(NULLS)
    applied.kubectl("apply")
    applied.assert_nothing_left_to_apply()
    assert applied.generations() == {1}


def apply(control_plane: Any, namespace: str, manager: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Apply a manifest server-side as `manager`. Fails if there is a conflict."""
    where = path(namespace, manifest["metadata"]["name"]) + f"?fieldManager={manager}&fieldValidation=Strict"
    found: dict[str, Any] = control_plane.request("PATCH", where, manifest, APPLY)
    return found


def queued(name: str, suspend: bool, **spec: Any) -> dict[str, Any]:
    """Return the object that a queue applies. It contains only the fields that the queue owns."""
    template = {"metadata": {"labels": {"queue": "a"}}, "spec": spec}
    return document("TrainingJob", name, suspend=suspend, roles=[{"name": "worker", "template": template}])


@pytest.mark.parametrize(
    "template",
    [
        None,
        {},
        {"spec": {}},
        {"spec": {"nodeSelector": {"disk": "fast"}}},
        {"metadata": {"labels": {"team": "b"}}, "spec": {"containers": [{}]}},
    ],
)
def test_fields_owned_by_a_queue_survive_an_apply_without_these_fields(
    control_plane: Any, namespace: str, template: dict[str, Any] | None
) -> None:
    file = job("shared", template, {})
    apply(control_plane, namespace, "argocd-controller", file)
    held = apply(control_plane, namespace, "queue", queued("shared", True, nodeSelector={"pool": "spot"}))
    assert held["spec"]["suspend"] and held["metadata"]["generation"] == 2
    again = apply(control_plane, namespace, "argocd-controller", file)
    assert again["metadata"] == held["metadata"] and again["spec"] == held["spec"]
    restored = apply(control_plane, namespace, "queue", document("TrainingJob", "shared", suspend=False))
    plain = restored["spec"]["roles"][0].get("template") or {}
    assert "pool" not in str(plain) and "queue" not in str(plain)
    # When another manager's last field in a map is removed, the API server also removes the map. The next
    # apply of the file restores the map once.
    settled = apply(control_plane, namespace, "argocd-controller", file)
    assert apply(control_plane, namespace, "argocd-controller", file)["metadata"] == settled["metadata"]


def test_an_apply_of_fields_owned_by_a_queue_is_a_conflict(control_plane: Any, namespace: str) -> None:
    apply(control_plane, namespace, "queue", job("both", suspend=True))
    words = refusal(lambda: apply(control_plane, namespace, "argocd-controller", job("both", suspend=False)))
    assert 'conflict with "queue"' in words and ".spec.suspend" in words


def test_a_patch_of_the_whole_list_does_not_change_a_later_apply(control_plane: Any, namespace: str) -> None:
    """Kueue patches the whole list `roles`. Argo CD applies its file every three minutes and must not undo
    the patch.
    """
    file = job("patched")
    apply(control_plane, namespace, "argocd-controller", file)
    roles = queued("patched", False, nodeSelector={"pool": "spot"})["spec"]["roles"]
    roles[0]["replicas"] = 2
    change = {"spec": {"suspend": True, "roles": roles}}
    held = control_plane.request("PATCH", path(namespace, "patched") + "?fieldManager=kueue", change, MERGE)
    again = apply(control_plane, namespace, "argocd-controller", file)
    assert (again["spec"], again["metadata"]["generation"]) == (held["spec"], held["metadata"]["generation"])


def test_the_operator_owns_no_field_of_a_spec(control_plane: Any, namespace: str) -> None:
    """The operator writes only the status, so it cannot conflict with an applied file."""
    apply(control_plane, namespace, "argocd-controller", job("watched"))
    where = path(namespace, "watched", "status") + "?fieldManager=convoy-operator"
    stored = control_plane.request("PATCH", where, {"status": {"phase": "Running"}}, MERGE)
    assert stored["metadata"]["generation"] == 1
    again = apply(control_plane, namespace, "argocd-controller", job("watched"))
    assert again["metadata"] == stored["metadata"] and again["status"]["phase"] == "Running"


@pytest.fixture
def namespace(control_plane: Any) -> str:
    return str(control_plane.namespace("gitops"))
