"""Reads the environment variables that a role declares for the ranks' container."""

from __future__ import annotations

from convoy_commands.references import expand
from convoy_crds.servingjob import ServingRole
from convoy_crds.trainingjob import Role


def declared(role: Role | ServingRole) -> dict[str, str]:
    """Return the variables that have a plain value. References in a value to earlier variables are
    expanded, as the kubelet does.

    Variables whose values come from Secrets, ConfigMaps or fields are left out.
    """
    containers = role.template.spec.containers if role.template else None
    entries = containers[0].env if containers else None
    found: dict[str, str] = {}
    for entry in entries or ():
        if entry.value_from is None:
            (found[entry.name],) = expand([entry.value or ""], found)
    return found
