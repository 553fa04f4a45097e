"""Builds CEL expressions about the first container of a role's pod template. A null counts as absent."""

from __future__ import annotations


def has_container(role: str) -> str:
    """Return CEL that is true if the template of the variable `role` has a container."""
    return (
        f"has({role}.template) && {role}.template != null && has({role}.template.spec) && "
        f"{role}.template.spec != null"
        f" && has({role}.template.spec.containers)"
        f" && type({role}.template.spec.containers) == list && size({role}.template.spec.containers) > 0"
    )


def has_field(role: str, field: str, kind: str) -> str:
    """Return CEL that is true if the first container of the variable `role` has the field `field` of the
    CEL type `kind`.
    """
    path = f"{role}.template.spec.containers[0].{field}"
    return f"has({path}) && type({path}) == {kind}"
