"""The roles for users of a kind's objects: one role for viewing them, and one for editing them."""

from __future__ import annotations

from typing import Any

from convoy_crds.kind import Editors, Kind

VIEW, EDIT, ADMIN = "view", "edit", "admin"
"""Names of Kubernetes' own roles for users. The chart adds the rights of Convoy's roles to them."""
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
_EDITED_BY = {Editors.NAMESPACE_USERS: [EDIT, ADMIN], Editors.CLUSTER_ADMINS: [ADMIN]}


def roles(kind: Kind[Any]) -> list[dict[str, Any]]:
    """Return the roles for a kind, with name, aggregation and rules, in the form that the chart reads."""
    return [
        _role(kind, "viewer", [VIEW, EDIT, ADMIN], READ),
        _role(kind, "editor", _EDITED_BY[kind.editors], READ + WRITE),
    ]


def _role(kind: Kind[Any], name: str, into: list[str], verbs: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": f"{kind.plural}-{name}",
        "aggregateTo": into,
        "rules": [
            {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": list(verbs)},
            {"apiGroups": [kind.group], "resources": [f"{kind.plural}/status"], "verbs": ["get"]},
        ],
    }
