"""Derives the operator's RBAC rules from its controllers. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from convoy_controllers.children import (
    Apply,
    Check,
    Child,
    Create,
    Delete,
    EndPod,
    EvictPod,
    Patch,
    PatchStatus,
)
from convoy_controllers.controller import Controller, Makes
from convoy_controllers.resources import PODS, Resource

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
"""All verbs, in the order in which rules list them."""
_CHILDREN: Mapping[type[Child], tuple[str, ...]] = {
    Create: ("create",),
    Check: ("create",),
    Apply: ("get", "list", "watch", "create", "patch", "delete"),
    Delete: ("delete",),
    Patch: ("patch",),
    PatchStatus: ("get", "create"),
    EndPod: ("patch", "delete"),
    EvictPod: (),
}
"""RBAC verbs that each type of child needs on its resource. Subresources need further rights."""

Wanted = dict[tuple[str, str], set[str]]
"""Verbs by API group and resource."""


def rules(controllers: Iterable[Controller[Any]]) -> list[dict[str, Any]]:
    """Return the rules that the controllers need in the operator's ClusterRole, sorted by group and
    resource.
    """
    wanted: Wanted = defaultdict(set)
    for one in controllers:
        _grant(wanted, one.resource, "list", "watch")
        if one.kind is not None:
            _grant(wanted, one.resource, "patch", subresource="status")
        if one.deletes:
            _grant(wanted, one.resource, "delete")
        for watch in one.watches:
            _grant(wanted, watch.resource, "list", "watch")
        for made in one.makes:
            _made(wanted, one, made)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb for verb in VERBS if verb in verbs]}
        for (group, resource), verbs in sorted(wanted.items())
    ]


def _made(wanted: Wanted, controller: Controller[Any], made: Makes) -> None:
    if made.subresource:
        _grant(wanted, made.resource, "patch", subresource=made.subresource)
        return
    for child in made.children:
        _grant(wanted, made.resource, *_CHILDREN[child])
    if PatchStatus in made.children:
        _grant(wanted, made.resource, "patch", subresource="status")
    if EvictPod in made.children:
        _grant(wanted, PODS, "create", subresource="eviction")
    if made.owned and {Create, Apply} & set(made.children):
        # If the response to a create request is lost, the operator reads the object to learn whether it
        # exists. Therefore it needs `get`.
        _grant(wanted, made.resource, "get")
        # The admission plugin OwnerReferencesPermissionEnforcement demands this right for
        # `blockOwnerDeletion`.
        _grant(wanted, controller.resource, "update", subresource="finalizers")


def _grant(wanted: Wanted, resource: Resource, *verbs: str, subresource: str = "") -> None:
    if verbs:
        name = f"{resource.plural}/{subresource}" if subresource else resource.plural
        wanted[resource.group, name] |= set(verbs)
