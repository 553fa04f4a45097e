"""Compares the rights of service accounts with their API requests.

It finds rights that no request used, and requests that were refused. Rights come from the objects of a
rendered chart, requests from lines of the API server's audit log. This module does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_PREFIX = "system:serviceaccount:"
_DECISION = "authorization.k8s.io/decision"
"""Annotation of audit events with the authorizer's decision: `allow` or `forbid` (Kubernetes, "Audit
Annotations").
"""


@dataclass(frozen=True, order=True, slots=True)
class Right:
    """A service account's right to use one verb on one resource."""

    account: str
    group: str
    resource: str
    """The resource, with `/` and the subresource if there is one, as in roles: `pods/eviction`."""
    verb: str
    name: str = ""
    """Name of the only object for which the right is valid; empty for all objects."""
    namespace: str = ""
    """The only namespace in which the right is valid; empty for all namespaces."""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {kind}{f' {self.name}' if self.name else ''}{where}"

    def covers(self, needed: Right) -> bool:
        """Return True if an account with this right may do everything that `needed` allows."""
        return (
            (self.account, self.group, self.resource, self.verb)
            == (needed.account, needed.group, needed.resource, needed.verb)
            and self.name in ("", needed.name)
            and self.namespace in ("", needed.namespace)
        )


@dataclass(frozen=True, order=True, slots=True)
class Request:
    """A request that was answered, or a watch that has started."""

    right: Right
    """The right that the request needs. It has the request's own object name and namespace."""
    code: int
    """HTTP status of the response."""
    authorized: bool = False
    """True if the account had the right. With `code` 403, the request was then refused by admission, for
    example by pod security.
    """

    def __str__(self) -> str:
        return f"{self.right}: {self.code}"

    @property
    def refused(self) -> bool:
        """True if the request was refused because the account lacks the right."""
        return self.code == 403 and not self.authorized

    @property
    def needs(self) -> Iterable[Right]:
        """All rights that the request needs. An apply that creates an object needs `create` as well as
        `patch`.
        """
        yield self.right
        if self.right.verb == "patch" and self.code == 201:
            yield replace(self.right, verb="create")


def parse(line: bytes | str, namespace: str) -> Request | None:
    """Return the request in an audit log line.

    None if the request's account is in another namespace, or if the request has no resource.
    """
    event = json.loads(line)
    of, _, account = event["user"]["username"].removeprefix(_PREFIX).partition(":")
    about = event.get("objectRef") or {}
    if of != namespace or "resource" not in about:
        return None
    resource, subresource = about["resource"], about.get("subresource")
    right = Right(
        account=account,
        group=about.get("apiGroup", ""),
        resource=f"{resource}/{subresource}" if subresource else resource,
        verb=event["verb"],
        name=about.get("name", ""),
        namespace=about.get("namespace", ""),
    )
    code = (event.get("responseStatus") or {}).get("code", 0)
    return Request(right, code, (event.get("annotations") or {}).get(_DECISION) == "allow")


def granted(objects: Iterable[Mapping[str, Any]], accounts: Iterable[str]) -> frozenset[Right]:
    """Return the rights of these service accounts. `objects` contains roles and their bindings.

    Raises ValueError for a role that does not exist, and for a rule with a wildcard or a URL, because such
    a rule cannot be compared with requests.
    """
    objects, wanted = list(objects), set(accounts)
    roles = {_place(one): one for one in objects if one["kind"] in ("Role", "ClusterRole")}
    found: set[Right] = set()
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        bound = {one["name"] for one in binding["subjects"] if one["kind"] == "ServiceAccount"} & wanted
        namespace = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        place = (reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"])
        if bound and place not in roles:
            raise ValueError(f"{binding['metadata']['name']} binds {' '.join(place)}, which does not exist")
        for account in bound:
            found |= {replace(right, account=account, namespace=namespace) for right in _rights(roles[place])}
    return frozenset(found)


def _place(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _rights(role: Mapping[str, Any]) -> Iterable[Right]:
    for rule in role["rules"]:
        values = [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]]
        if "*" in values or "nonResourceURLs" in rule:
            raise ValueError(f"{role['metadata']['name']}: cannot check whether all of {rule} is needed")
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield Right("", group, resource, verb, name)


def used(rights: Iterable[Right], requests: Iterable[Request]) -> frozenset[Right]:
    """Return the rights that at least one request used. A refused request uses no right.

    If several rights cover a request, only the narrowest counts as used by it.
    """
    rights = list(rights)
    # Collect the rights in a set, because many requests need the same right.
    needed = {right for request in requests if not request.refused for right in request.needs}
    found = set()
    for one in needed:
        if covering := [right for right in rights if right.covers(one)]:
            found.add(max(covering, key=lambda right: (bool(right.name), bool(right.namespace))))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class UsedElsewhere:
    """Rights that the slice does not use, and a test outside the slice that does. The slice is the e2e
    tests in CI.
    """

    account: str
    verbs: str
    """Verbs, separated by spaces. `resources` has the same format."""
    resources: str
    why: str
    test: str
    """The test that uses the rights, as `file::test`."""
    name: str = ""
    """Name of the only object for which the rights are valid; empty for all objects."""
    uncertain: bool = False
    """True if the slice uses the rights only sometimes, or if their use is not visible in the audit log."""

    def includes(self, right: Right) -> bool:
        """Return True if `right` is one of these rights."""
        kind = f"{right.resource}.{right.group}" if right.group else right.resource
        return (
            right.account == self.account
            and right.verb in self.verbs.split()
            and kind in self.resources.split()
            and right.name == self.name
        )

    def __str__(self) -> str:
        return f"{self.account}: {self.verbs} {self.resources} {self.name}".rstrip()


def faults(
    rights: Iterable[Right],
    exercised: Iterable[Right],
    elsewhere: Iterable[UsedElsewhere] = (),
    ran: Iterable[str] = (),
    *,
    more_than_slice: bool = False,
) -> list[str]:
    """Return the faults found after a run of the slice. `ran` contains the tests that ran, as `file::test`.

    These are faults:

    - The chart grants a right that was neither used nor listed in `elsewhere`.
    - A listed right is not granted by the chart.
    - The test of a listed right ran without using the right.
    - A listed right was used by a run of the slice alone. Set `more_than_slice` if other tests ran too.
    """
    rights, exercised, ran = set(rights), set(exercised), set(ran)
    listed: set[Right] = set()
    found = []
    for entry in elsewhere:
        mine = {right for right in rights if entry.includes(right)}
        listed |= mine
        expected = len(entry.verbs.split()) * len(entry.resources.split())
        if len(mine) != expected:
            found.append(f"{entry} is listed, but only {len(mine)} of its {expected} rights are granted")
        elif entry.uncertain:
            continue
        elif entry.test in ran:
            found += [f"{right} was not used by {entry.test}" for right in sorted(mine - exercised)]
        elif not more_than_slice:
            found += [f"{right} is listed as unused, but was used" for right in sorted(mine & exercised)]
    found += [f"{right} is granted, but was not used" for right in sorted(rights - exercised - listed)]
    return found
