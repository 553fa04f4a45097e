"""The roles of the chart: those for people and where they are aggregated, and those of its own accounts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e import rights

from .conftest import CHART, NAMESPACE, of_kind, one, render

KINDS = [yaml.safe_load(path.read_text())["spec"]["names"]["plural"] for path in CHART.glob("files/crds/*")]
EDITED_BY_ADMINISTRATORS = {
    "checkpointstores",
    "guardpolicies",
    "hardwareclasses",
    "healthsweeps",
    "nodehealths",
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
    assert set(KINDS) > EDITED_BY_ADMINISTRATORS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_a_role_to_see_and_one_to_change_it(helm: Path, kind: str) -> None:
    bodies = render(helm)
    viewer = one(bodies, "ClusterRole", f"convoy-{kind}-viewer")
    editor = one(bodies, "ClusterRole", f"convoy-{kind}-editor")
    for role, verbs in ((viewer, SEE), (editor, SEE | CHANGE)):
        granted = {(rule["apiGroups"][0], rule["resources"][0]): set(rule["verbs"]) for rule in role["rules"]}
        assert granted == {("convoy.dev", kind): verbs, ("convoy.dev", f"{kind}/status"): {"get"}}
    assert aggregated(viewer) == {"view", "edit", "admin"}
    wanted = {"admin"} if kind in EDITED_BY_ADMINISTRATORS else {"edit", "admin"}
    assert aggregated(editor) == wanted


def test_aggregation_can_be_left_off(helm: Path) -> None:
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


def told(page: str) -> Iterator[rights.Right]:
    """The rights that stand in the table of a page. ValueError for a row without what it is for."""
    rows = re.findall(
        r"^\| `(convoy-[a-z]+)` \| ([a-z-]+) \| ([a-z, ]+) \| (.+?) \|(.*)\|$", page, re.MULTILINE
    )
    for account, where, verbs, resources, why in rows:
        if not why.strip():
            raise ValueError(f"{account}: {verbs} {resources}: for what?")
        namespace = {"everywhere": "", "own": NAMESPACE}.get(where, where)
        kinds = re.findall(r"`([a-z/]+)\.?([a-z0-9.]*)`(?: named `([a-z-]+)`)?", resources)
        for verb, (resource, group, name) in product(verbs.split(", "), kinds):
            yield rights.Right(account, group, resource, verb, name, namespace)


def test_each_right_stands_on_the_page_of_security_with_what_it_is_for(helm: Path) -> None:
    bodies = render(helm, "dashboard.enabled=true")
    accounts = [body["metadata"]["name"] for body in of_kind(bodies, "ServiceAccount")]
    page = list(told(PAGE.read_text()))
    assert set(map(str, page)) == set(map(str, rights.granted(bodies, accounts)))
    assert len(page) == len(set(page)), "a right stands there twice"
