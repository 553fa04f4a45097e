"""Tests of the chart's roles: the roles for users with their aggregation, and the roles of the chart's own
accounts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e import rights
from pydantic.alias_generators import to_camel

from convoy_crds.kind import Editors, Kind
from convoy_crds.kinds import KINDS

from .conftest import CHART, NAMESPACE, of_kind, one, render

EDITED_BY_ADMINISTRATORS = {
    "checkpointstores",
    "guardpolicies",
    "hardwareclasses",
    "healthsweeps",
    "nodehealths",
    "spotpools",
}
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
PAGE = CHART.parents[1] / "docs" / "security.md"
SEE, CHANGE = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}


def aggregated(role: dict[str, Any]) -> set[str]:
    labels = role["metadata"]["labels"]
    return {
        key.removeprefix(AGGREGATE)
        for key, value in labels.items()
        if key.startswith(AGGREGATE) and value == "true"
    }


def test_every_kind_of_the_source_is_in_the_chart() -> None:
    sources = {path.name for path in (CHART.parents[1] / "crds").glob("*.yaml")}
    assert sources == {path.name for path in CHART.glob("files/crds/*")}
    assert sources == {path.name for path in CHART.glob("files/roles/*")}


def test_only_administrators_edit_kinds_that_control_nodes_and_keys() -> None:
    by_administrators = {kind.plural for kind in KINDS if kind.editors is Editors.CLUSTER_ADMINS}
    assert by_administrators >= EDITED_BY_ADMINISTRATORS


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.makes_pods], ids=lambda kind: kind.name)
def test_every_kind_that_creates_pods_has_an_optional_policy(helm: Path, kind: Kind[Any]) -> None:
    settings = to_camel(kind.attribute)
    assert yaml.safe_load((CHART / "values.yaml").read_text())["admission"][settings]["enabled"] is False
    bodies = render(helm, values={"admission": {settings: {"enabled": True}}})
    policy = one(bodies, "ValidatingAdmissionPolicy", f"convoy-{kind.plural}")
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == [kind.plural]
    assert one(bodies, "ValidatingAdmissionPolicyBinding", f"convoy-{kind.plural}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
def test_every_kind_has_a_viewer_role_and_an_editor_role(helm: Path, kind: Kind[Any]) -> None:
    bodies = render(helm)
    viewer = one(bodies, "ClusterRole", f"convoy-{kind.plural}-viewer")
    editor = one(bodies, "ClusterRole", f"convoy-{kind.plural}-editor")
    for role, verbs in ((viewer, SEE), (editor, SEE | CHANGE)):
        granted = {(rule["apiGroups"][0], rule["resources"][0]): set(rule["verbs"]) for rule in role["rules"]}
        assert granted == {
            ("convoy.dev", kind.plural): verbs,
            ("convoy.dev", f"{kind.plural}/status"): {"get"},
        }
    assert aggregated(viewer) == {"view", "edit", "admin"}
    wanted = {"edit", "admin"} if kind.editors is Editors.NAMESPACE_USERS else {"admin"}
    assert aggregated(editor) == wanted


def test_aggregation_can_be_disabled(helm: Path) -> None:
    roles = [
        role
        for role in of_kind(render(helm, "rbac.aggregate=false"), "ClusterRole")
        if role["metadata"]["name"].endswith(("-viewer", "-editor"))
    ]
    assert len(roles) == 2 * len(KINDS)
    assert not any(aggregated(role) for role in roles)


@pytest.mark.parametrize(
    ("named", "read"), [((), {"convoy-ca", ""}), (("a", "b"), {"convoy-ca", "a", "b"})], ids=["any", "named"]
)
def test_the_operator_reads_secrets_by_name_and_in_its_own_namespace(
    helm: Path, named: tuple[str, ...], read: set[str]
) -> None:
    given = rights.granted(
        render(helm, values={"operator": {"storeSecrets": list(named)}}), ["convoy-operator"]
    )
    secrets = [one for one in given if one.resource == "secrets"]
    assert {one.name for one in secrets if one.verb == "get"} == read
    assert {one.verb for one in secrets} == {"get", "create"}
    assert {one.namespace for one in secrets} == {NAMESPACE}


def rights_of_page(page: str) -> Iterator[rights.Right]:
    """Yield the rights in the table of a page. Raises ValueError for a row without a reason."""
    rows = re.findall(
        r"^\| `(convoy-[a-z]+)` \| ([a-z-]+) \| ([a-z, ]+) \| (.+?) \|(.*)\|$", page, re.MULTILINE
    )
    for account, where, verbs, resources, why in rows:
        if not why.strip():
            raise ValueError(f"{account}: {verbs} {resources}: for what?")
        namespace = {"everywhere": "", "own": NAMESPACE}.get(where, where)
        kinds = re.findall(r"`([a-z/]+)\.?([a-z0-9.-]*)`(?: named `([a-z-]+)`)?", resources)
        for verb, (resource, group, name) in product(verbs.split(", "), kinds):
            yield rights.Right(account, group, resource, verb, name, namespace)


def test_the_security_page_lists_each_right_with_its_purpose(helm: Path) -> None:
    bodies = render(helm, "dashboard.enabled=true")
    accounts = [body["metadata"]["name"] for body in of_kind(bodies, "ServiceAccount")]
    page = list(rights_of_page(PAGE.read_text()))
    assert set(map(str, page)) == set(map(str, rights.granted(bodies, accounts)))
    assert len(page) == len(set(page)), "a right stands there twice"
