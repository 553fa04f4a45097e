"""The field `allowedNamespaces`, by which a cluster-scoped object names the namespaces that may use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Rule

ALL_NAMESPACES = "*"
_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

AllowedNamespaces = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=63)]],
    Field(min_length=1, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
]
"""Names of namespaces, or `*` for all."""

ALLOWED_NAMESPACES_RULE = Rule(
    f"self.allowedNamespaces.all(n, n == '{ALL_NAMESPACES}' || n.matches('^{_NAME}$'))",
    f"each entry of allowedNamespaces must be the name of a namespace, or '{ALL_NAMESPACES}' for all",
    ".allowedNamespaces",
)


def allows(allowed: Sequence[str], namespace: str | None) -> bool:
    """Return True if objects of the namespace may use the object with this list."""
    return ALL_NAMESPACES in allowed or (namespace or "") in allowed
