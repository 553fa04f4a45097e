"""What service accounts may do, held against what they did: granted and unused, needed for and refused.

Pure: roles come as objects of a rendered chart, requests as lines of the API server's audit log.
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
    """With its subresource, as roles write it: `pods/eviction`."""
    verb: str
    name: str = ""
    """Of the only object that it is for; empty: of any."""
    namespace: str = ""
    """The only one that it holds in; empty: everywhere."""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {kind}{f' {self.name}' if self.name else ''}{where}"

    def covers(self, needed: Right) -> bool:
        """Whether this right allows what takes another."""
        return (
            (self.account, self.group, self.resource, self.verb)
            == (needed.account, needed.group, needed.resource, needed.verb)
            and self.name in ("", needed.name)
            and self.namespace in ("", needed.namespace)
        )


@dataclass(frozen=True, order=True, slots=True)
class Request:
    """One request that was answered, or a watch that has begun."""

    right: Right
    """What it takes, with the names that it was about."""
    code: int
    """HTTP status of the answer."""
    authorized: bool = False
    """True where the account had the right: a 403 is then that of admission, such as a pod security level."""

    def __str__(self) -> str:
        return f"{self.right}: {self.code}"

    @property
    def refused(self) -> bool:
        """True where the account lacked the right."""
        return self.code == 403 and not self.authorized

    @property
    def needs(self) -> Iterable[Right]:
        """The rights that it needs: who applies an object that is not there must be allowed to create it."""
        yield self.right
        if self.right.verb == "patch" and self.code == 201:
            yield replace(self.right, verb="create")


def parse(line: bytes | str, namespace: str) -> Request | None:
    """The request of one line; None when it is of no service account of this namespace, or of no resource."""
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
    """The rights that bindings among these objects give to these service accounts.

    ValueError for a rule that no request can be held against (a wildcard, a URL), and a role that is lacking.
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
            raise ValueError(f"{binding['metadata']['name']} binds {' '.join(place)}, which is not there")
        for account in bound:
            found |= {replace(right, account=account, namespace=namespace) for right in _rights(roles[place])}
    return frozenset(found)


def _place(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def _rights(role: Mapping[str, Any]) -> Iterable[Right]:
    for rule in role["rules"]:
        values = [*rule.get("apiGroups", ()), *rule.get("resources", ()), *rule["verbs"]]
        if "*" in values or "nonResourceURLs" in rule:
            raise ValueError(f"{role['metadata']['name']}: nobody can say whether all of {rule} is needed")
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or [""]:
                        yield Right("", group, resource, verb, name)


def used(rights: Iterable[Right], requests: Iterable[Request]) -> frozenset[Right]:
    """The rights without which one of the requests would have been refused.

    Of two that cover it the one that is for fewer objects counts: the other has to be needed by itself.
    """
    rights = list(rights)
    # Very many requests take the same.
    needed = {right for request in requests if not request.refused for right in request.needs}
    found = set()
    for one in needed:
        if covering := [right for right in rights if right.covers(one)]:
            found.add(max(covering, key=lambda right: (bool(right.name), bool(right.namespace))))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class UsedElsewhere:
    """Rights that the e2e slice does not use."""

    account: str
    verbs: str
    """Some, with spaces between them; so are the resources."""
    resources: str
    why: str
    test: str
    """The one that uses them: `file::test`."""
    name: str = ""
    """Of the only object that they are for."""
    uncertain: bool = False
    """Whether a run may show them or not: used by chance, or checked in the middle of another request."""

    def holds(self, right: Right) -> bool:
        """Whether a right is one of these."""
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
    """What is wrong with the rights after a run of the slice in which these tests, as `file::test`, have run.

    Each right was exercised, or is listed with a test that did not run; a listed one is granted and was not
    exercised, unless the run had `more_than_slice` than the slice.
    """
    rights, exercised, ran = set(rights), set(exercised), set(ran)
    listed: set[Right] = set()
    found = []
    for entry in elsewhere:
        mine = {right for right in rights if entry.holds(right)}
        listed |= mine
        expected = len(entry.verbs.split()) * len(entry.resources.split())
        if len(mine) != expected:
            found.append(f"{entry} is listed; of its {expected} rights {len(mine)} are granted")
        elif entry.uncertain:
            continue
        elif entry.test in ran:
            found += [f"{right} was not used by {entry.test}" for right in sorted(mine - exercised)]
        elif not more_than_slice:
            found += [f"{right} is listed and was used" for right in sorted(mine & exercised)]
    found += [f"{right} is granted and was not used" for right in sorted(rights - exercised - listed)]
    return found
