"""Tests of the comparison of rights with API requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from e2e import rights
from e2e.rights import Request, Right, UsedElsewhere

HOME = "convoy-system"
ME = "convoy-operator"


def right(verb: str, resource: str = "pods", name: str = "", namespace: str = "", group: str = "") -> Right:
    return Right(ME, group, resource, verb, name, namespace)


def line(
    user: str = f"system:serviceaccount:{HOME}:{ME}",
    code: int | None = 200,
    decision: str = "forbid",
    **about: Any,
) -> str:
    event: dict[str, Any] = {"user": {"username": user}, "verb": "get", "requestURI": "/api"}
    event["annotations"] = {"authorization.k8s.io/decision": decision}
    if about:
        event["objectRef"] = about
    if code is not None:
        event["responseStatus"] = {"code": code}
    return json.dumps(event)


POD = {"resource": "pods", "namespace": "team", "name": "p"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (line(**POD), Request(right("get", "pods", "p", "team"), 200)),
        (line(**POD, subresource="log"), Request(right("get", "pods/log", "p", "team"), 200)),
        (line(resource="jobs", apiGroup="batch"), Request(right("get", "jobs", group="batch"), 200)),
        (line(code=403, **POD), Request(right("get", "pods", "p", "team"), 403)),
        (line(code=403, decision="allow", **POD), Request(right("get", "pods", "p", "team"), 403, True)),
        (line(code=None, **POD), Request(right("get", "pods", "p", "team"), 0)),
        (line(), None),
        (line("system:serviceaccount:other:convoy-operator", **POD), None),
        (line("convoy-admin", **POD), None),
        (line("system:node:node-1", **POD), None),
    ],
    ids=[
        "get",
        "subresource",
        "group",
        "refused",
        "not admitted",
        "watch",
        "a URL",
        "another's",
        "a person",
        "a node",
    ],
)
def test_an_audit_line_yields_the_request_of_an_account(text: str, found: Request | None) -> None:
    assert rights.parse(text, HOME) == found


def role(kind: str, name: str, *rules: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "metadata": metadata, "rules": list(rules)}


def binding(
    kind: str, name: str, namespace: str = "", account: str = ME, subject: str = "ServiceAccount"
) -> dict[str, Any]:
    scope = "Role" if namespace else "ClusterRole"
    return {
        "kind": f"{scope}Binding",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"kind": kind, "name": name},
        "subjects": [{"kind": subject, "name": account}],
    }


PODS = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
ONE = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}
ANYTHING = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": None, "verbs": ["get"]}


def test_rights_come_from_bound_roles() -> None:
    objects = [
        role("ClusterRole", "everywhere", PODS),
        binding("ClusterRole", "everywhere"),
        role("Role", "here", ONE, namespace=HOME),
        binding("Role", "here", HOME),
        role("ClusterRole", "lent", ANYTHING),
        binding("ClusterRole", "lent", "team"),
        role("ClusterRole", "unbound", ANYTHING),
        role("ClusterRole", "another's", ANYTHING),
        binding("ClusterRole", "another's", account="somebody"),
        role("ClusterRole", "a person's", ANYTHING),
        binding("ClusterRole", "a person's", subject="User"),
        {"kind": "Deployment", "metadata": {"name": "everywhere"}},
    ]
    assert rights.granted(objects, [ME]) == {
        *(right(verb, resource) for verb in ("get", "list") for resource in ("pods", "pods/log")),
        right("get", "secrets", "a", HOME),
        right("get", "secrets", "b", HOME),
        right("get", "secrets", namespace="team"),
    }
    assert rights.granted(objects, ["convoy-agent"]) == frozenset()


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([binding("ClusterRole", "lost")], "binds ClusterRole  lost, which does not exist"),
        ([role("Role", "r", PODS, namespace="a"), binding("Role", "r", "b")], "binds Role b r"),
        *(
            (
                [role("ClusterRole", "r", {**PODS, field: ["*"]}), binding("ClusterRole", "r")],
                "cannot check whether",
            )
            for field in ("verbs", "resources", "apiGroups")
        ),
        (
            [
                role("ClusterRole", "r", {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
                binding("ClusterRole", "r"),
            ],
            "cannot check whether",
        ),
    ],
    ids=["no role", "a role elsewhere", "any verb", "any resource", "any group", "a URL"],
)
def test_a_rule_that_cannot_be_compared_with_requests_is_an_error(
    objects: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        rights.granted(objects, [ME])


ANY, OWN, NAMED = right("get"), right("get", namespace=HOME), right("get", "pods", "p", HOME)


@pytest.mark.parametrize(
    ("given", "requested", "code", "found"),
    [
        ([ANY], right("get", "pods", "p", "team"), 200, {ANY}),
        ([ANY], right("get", "pods", "p", "team"), 404, {ANY}),
        ([ANY], right("get", "pods", "p", "team"), 0, {ANY}),
        ([ANY], right("get", "pods", "p", "team"), 403, set()),
        ([ANY], right("list"), 200, set()),
        ([ANY], right("get", "pods/log", "p"), 200, set()),
        ([ANY], right("get", group="metrics.k8s.io"), 200, set()),
        ([ANY, OWN], right("get", "pods", "q", HOME), 200, {OWN}),
        ([ANY, OWN, NAMED], right("get", "pods", "p", HOME), 200, {NAMED}),
        ([ANY, OWN, NAMED], right("get", "pods", "q", HOME), 200, {OWN}),
        ([ANY, OWN, NAMED], right("get", "pods", "p", "team"), 200, {ANY}),
        ([right("patch"), right("create")], right("patch"), 200, {right("patch")}),
        ([right("patch"), right("create")], right("patch"), 201, {right("patch"), right("create")}),
    ],
    ids=[
        "used",
        "nothing was there",
        "a watch that goes on",
        "refused",
        "another verb",
        "another subresource",
        "another group",
        "the namespace's own",
        "the object's own",
        "not the other object's",
        "not the other namespace's",
        "an apply",
        "an apply that creates",
    ],
)
def test_a_right_is_used_by_a_request_that_needs_the_right(
    given: list[Right], requested: Right, code: int, found: set[Right]
) -> None:
    assert rights.used(given, [Request(requested, code)]) == found


def test_requests_of_another_account_use_no_rights() -> None:
    assert rights.used([ANY], [Request(Right("other", "", "pods", "get"), 200)]) == frozenset()


GET, LIST = right("get"), right("list")
LISTED = UsedElsewhere(ME, "get", "pods", "why", "file.py::test")


@pytest.mark.parametrize(
    ("exercised", "elsewhere", "ran", "found"),
    [
        ([GET, LIST], [], [], []),
        ([LIST], [], [], [f"{ME}: get pods is granted, but was not used"]),
        ([LIST], [LISTED], [], []),
        ([GET, LIST], [LISTED], [], [f"{ME}: get pods is listed as unused, but was used"]),
        ([GET, LIST], [LISTED], ["file.py::test"], []),
        ([LIST], [LISTED], ["file.py::test"], [f"{ME}: get pods was not used by file.py::test"]),
        ([LIST], [replace(LISTED, uncertain=True)], ["file.py::test"], []),
        (
            [GET, LIST],
            [UsedElsewhere(ME, "get watch", "pods secrets", "", "t")],
            ["t"],
            [f"{ME}: get watch pods secrets is listed, but only 1 of its 4 rights are granted"],
        ),
        (
            [GET, LIST],
            [UsedElsewhere(ME, "get", "pods", "", "t", name="p")],
            [],
            [f"{ME}: get pods p is listed, but only 0 of its 1 rights are granted"],
        ),
    ],
    ids=[
        "all were used",
        "one was not",
        "one is listed",
        "a listed one was used all the same",
        "its own test ran",
        "its own test ran and did not use it",
        "its own test ran, and nobody can tell",
        "some are not granted",
        "for one object alone",
    ],
)
def test_a_right_is_used_or_listed_and_never_both(
    exercised: list[Right], elsewhere: list[UsedElsewhere], ran: list[str], found: list[str]
) -> None:
    assert rights.faults([GET, LIST], exercised, elsewhere, ran) == found


def test_a_listed_right_may_be_used_outside_the_slice() -> None:
    assert rights.faults([GET], [GET], [LISTED], more_than_slice=True) == []
    assert rights.faults([GET], [], [LISTED], ["file.py::test"], more_than_slice=True) != []


def test_a_right_is_formatted_like_a_role_rule() -> None:
    shown = [right("get", "secrets", "s", HOME), right("patch", "nodes/status", group="x.dev")]
    assert [str(one) for one in shown] == [
        f"{ME}: get secrets s in {HOME}",
        f"{ME}: patch nodes/status.x.dev",
    ]


@pytest.mark.parametrize(("authorized", "refused"), [(False, True), (True, False)])
def test_a_refusal_by_admission_is_not_a_missing_right(authorized: bool, refused: bool) -> None:
    assert Request(right("create", "pods"), 403, authorized).refused is refused
