"""Compares the rights of service accounts with their requests: granted but unused, or requested but
refused.

Pure: rights come from the objects of a rendered chart, requests from lines of the API server's audit log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_PREFIX = "system:serviceaccount:"
_DECISION = "authorization.k8s.io/decision"
"""Annotation of audit events: `allow` or `forbid` (Kubernetes, "Audit Annotations")."""


@dataclass(frozen=True, order=True, slots=True)
class Right:
    """One verb on one resource."""

    account: str
    group: str
    resource: str
    """The resource with its subresource, as in roles: `pods/eviction`."""
    verb: str
    name: str = ""
    """Name of the only object that the right is for; empty for any."""
    namespace: str = ""
    """The only namespace that the right is for; empty for all."""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {kind}{f' {self.name}' if self.name else ''}{where}"

    def covers(self, needed: Right) -> bool:
        """Return True if this right allows what needs the other right."""
        return (
            (self.account, self.group, self.resource, self.verb)
            == (needed.account, needed.group, needed.resource, needed.verb)
            and self.name in ("", needed.name)
            and self.namespace in ("", needed.namespace)
        )


@dataclass(frozen=True, order=True, slots=True)
class Request:
    """One request with a response, or a watch that has started."""

    right: Right
    """The right that the request needs, with the names in the request."""
    code: int
    """HTTP status of the response."""
    authorized: bool = False
    """True if the account had the right. A 403 then comes from admission, such as a pod security level."""

    def __str__(self) -> str:
        return f"{self.right}: {self.code}"

    @property
    def refused(self) -> bool:
        """True if the account lacked the right."""
        return self.code == 403 and not self.authorized

    @property
    def needs(self) -> Iterable[Right]:
        """The rights that the request needs. An apply that creates an object also needs `create`."""
        yield self.right
        if self.right.verb == "patch" and self.code == 201:
            yield replace(self.right, verb="create")


def parse(line: bytes | str, namespace: str) -> Request | None:
    """Return the request of one line; None if it is not of this namespace's accounts or has no resource."""
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
    """Return the rights that bindings among these objects give to these service accounts.

    Raises ValueError for a rule that cannot be compared with requests (a wildcard or a URL), and for a role
    that does not exist.
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
    """Return the rights without which at least one request would have been refused.

    If two rights cover a request, only the one for fewer objects counts. The other must be needed by
    another request.
    """
    rights = list(rights)
    # Many requests need the same rights.
    needed = {right for request in requests if not request.refused for right in request.needs}
    found = set()
    for one in needed:
        if covering := [right for right in rights if right.covers(one)]:
            found.add(max(covering, key=lambda right: (bool(right.name), bool(right.namespace))))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class UsedElsewhere:
    """Rights that the slice of e2e tests does not use."""

    account: str
    verbs: str
    """Verbs, separated by spaces. `resources` likewise."""
    resources: str
    why: str
    test: str
    """The test that uses the rights: `file::test`."""
    name: str = ""
    """Name of the only object that the rights are for; empty for any."""
    uncertain: bool = False
    """True if a run may or may not use the rights: by chance, or checked within another request."""

    def includes(self, right: Right) -> bool:
        """Return True if a right is one of these."""
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
    """Return the faults in the rights after a run of the slice. `ran` are the tests that ran, as
    `file::test`.

    Each right must have been used, or be listed with a test that did not run. A listed right must be
    granted, and must not have been used, unless the run had tests beyond the slice (`more_than_slice`).
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
