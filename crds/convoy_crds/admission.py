"""The part of the chart's ValidatingAdmissionPolicy that belongs to a kind whose operator makes pods.

The policy refuses objects that would have the operator make pods of more rights than their author has.
Existing objects are left alone until their pod templates change.

Pod templates are typed in part alone, so `.?` reads what may not be there. A null is a field left out. A
value of another type than Kubernetes has it may pass here: the API server refuses such a pod.
"""

from __future__ import annotations

from typing import Any

from pydantic.alias_generators import to_camel

from convoy_crds.kind import Kind

_SPECS = (
    ".map(r, dyn(r)).filter(r, r.?{field}.orValue(null) != null && "
    "r.{field}.?spec.orValue(null) != null).map(r, r.{field}.spec)"
)
"""CEL: from the objects that hold a pod template in a field to the pods' specs."""

_CONTAINERS = (
    "variables.pods.map(p, (p.?containers.orValue(null) == null ? [] : p.containers) + "
    "(p.?initContainers.orValue(null) == null ? [] : p.initContainers))"
)
_VOLUMES = "variables.pods.map(p, p.?volumes.orValue(null) == null ? [] : p.volumes)"

VALIDATIONS = (
    (
        "variables.containers.all(some, some.all(c, c.?securityContext.orValue(null) == null || "
        "c.securityContext.?privileged.orValue(false) != true))",
        "privileged containers are not for jobs of this namespace",
    ),
    (
        "variables.volumes.all(some, some.all(v, v.?hostPath.orValue(null) == null))",
        "volumes of kind hostPath are not for jobs of this namespace",
    ),
    (
        "variables.pods.all(p, p.?hostNetwork.orValue(false) != true && p.?hostPID.orValue(false) != true && "
        "p.?hostIPC.orValue(false) != true)",
        "hostNetwork, hostPID and hostIPC are not for jobs of this namespace",
    ),
    (
        # serviceAccount is an older name of serviceAccountName, which the API server still reads.
        "variables.pods.all(p, p.?serviceAccountName.orValue(null) in [dyn(null), dyn('default')] && "
        "p.?serviceAccount.orValue(null) in [dyn(null), dyn('default')])",
        "a serviceAccountName is not for jobs of this namespace",
    ),
    (
        "variables.pods.all(p, p.?automountServiceAccountToken.orValue(false) != true) && "
        "variables.volumes.all(some, some.all(v, v.?projected.orValue(null) == null || "
        "v.projected.?sources.orValue(null) == null || "
        "v.projected.sources.all(s, s.?serviceAccountToken.orValue(null) == null)))",
        "a token of the Kubernetes API (automountServiceAccountToken, or a projected volume) is not for jobs "
        "of this namespace",
    ),
)
"""CEL rules that every pod of the object must pass, and the words for those that break them."""


def admission(kind: Kind[Any]) -> dict[str, Any]:
    """Return the kind's part of the policy as the chart reads it.

    `values` names the kind's settings below the chart's `admission`.
    """
    holders = [_holders(path) for path in kind.pod_templates]
    return {
        "values": to_camel(kind.attribute),
        "resource": {"group": kind.group, "version": kind.version, "plural": kind.plural},
        "changed": " || ".join(_changed(path) for path in kind.pod_templates),
        "variables": [
            {"name": "pods", "expression": " + ".join(holders)},
            {"name": "containers", "expression": _CONTAINERS},
            {"name": "volumes", "expression": _VOLUMES},
        ],
        "validations": [{"expression": rule, "message": message} for rule, message in VALIDATIONS],
    }


def _holders(path: str) -> str:
    """Return CEL for the specs of the pods whose templates are at a path of the object.

    The parent of a template, or the list of its parents, must be a required field.
    """
    parent, _, field = path.rpartition(".")
    if parent.endswith("[]"):
        parents = f"object.{_single(parent.removesuffix('[]'))}"
    else:
        parents = f"[object.{_single(parent)}]"
    return parents + _SPECS.format(field=field)


def _changed(path: str) -> str:
    """Return CEL that is true if the templates at a path differ from those before the request."""
    parent, _, field = path.rpartition(".")
    if parent.endswith("[]"):
        part = parent.removesuffix("[]")
        return f"object.{part} != oldObject.{part}"
    return f"object.{parent}.?{field} != oldObject.{parent}.?{field}"


def _single(path: str) -> str:
    if "[]" in path:
        raise ValueError(f"a pod template lies in one list at most, not at {path}")
    return path
