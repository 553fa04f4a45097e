"""Builds a kind's part of the chart's ValidatingAdmissionPolicy, for kinds whose operator creates pods or
jobs.

The policy rejects an object if the operator's pods for this object would have more rights than the object's
author. It does not check an existing object until the object's pod templates change. It also rejects an
object for which the operator would create jobs that the author may not create.

The models type only some fields of a pod template, so the CEL uses `.?` for fields that may be absent. A
null counts as an absent field. A value of the wrong type may pass the policy, but then the API server
rejects the pod.
"""

from __future__ import annotations

from typing import Any

from pydantic.alias_generators import to_camel

from convoy_crds.kind import CreatedKind, Kind
from convoy_crds.meta import GROUP

_SPECS = (
    ".map(r, dyn(r)).filter(r, r.?{field}.orValue(null) != null && "
    "r.{field}.?spec.orValue(null) != null).map(r, r.{field}.spec)"
)
"""CEL that takes a list of objects and returns the pod specs in their field `{field}`. Objects without a
pod template in this field are left out.
"""

_CONTAINERS = (
    "variables.pods.map(p, (p.?containers.orValue(null) == null ? [] : p.containers) + "
    "(p.?initContainers.orValue(null) == null ? [] : p.initContainers))"
)
_VOLUMES = "variables.pods.map(p, p.?volumes.orValue(null) == null ? [] : p.volumes)"

VALIDATIONS = (
    (
        "variables.containers.all(some, some.all(c, c.?securityContext.orValue(null) == null || "
        "c.securityContext.?privileged.orValue(false) != true))",
        "privileged containers are not allowed for jobs in this namespace",
    ),
    (
        "variables.volumes.all(some, some.all(v, v.?hostPath.orValue(null) == null))",
        "hostPath volumes are not allowed for jobs in this namespace",
    ),
    (
        "variables.pods.all(p, p.?hostNetwork.orValue(false) != true && p.?hostPID.orValue(false) != true && "
        "p.?hostIPC.orValue(false) != true)",
        "hostNetwork, hostPID and hostIPC are not allowed for jobs in this namespace",
    ),
    (
        # The API server still reads serviceAccount, the older name of serviceAccountName, so check both.
        "variables.pods.all(p, p.?serviceAccountName.orValue(null) in [dyn(null), dyn('default')] && "
        "p.?serviceAccount.orValue(null) in [dyn(null), dyn('default')])",
        "serviceAccountName is not allowed for jobs in this namespace",
    ),
    (
        "variables.pods.all(p, p.?automountServiceAccountToken.orValue(false) != true) && "
        "variables.volumes.all(some, some.all(v, v.?projected.orValue(null) == null || "
        "v.projected.?sources.orValue(null) == null || "
        "v.projected.sources.all(s, s.?serviceAccountToken.orValue(null) == null)))",
        "a Kubernetes API token (automountServiceAccountToken, or a projected volume) is not allowed for "
        "jobs in this namespace",
    ),
)
"""Pairs of a CEL rule that every pod must pass, and the message for a pod that fails the rule."""


def admission(kind: Kind[Any]) -> dict[str, Any]:
    """Return the kind's part of the policy in the form that the chart reads.

    The entry `values` names the kind's settings below `admission` in the chart's values.
    """
    holders = [_holders(path) for path in kind.pod_templates]
    variables = (("pods", " + ".join(holders)), ("containers", _CONTAINERS), ("volumes", _VOLUMES))
    rules = (*(VALIDATIONS if kind.makes_pods else ()), *map(_may_create, kind.creates))
    return {
        "values": to_camel(kind.attribute),
        "resource": {"group": kind.group, "version": kind.version, "plural": kind.plural},
        "changed": " || ".join(_changed(path) for path in kind.pod_templates) or "false",
        "variables": [
            {"name": name, "expression": rule} for name, rule in (variables if kind.makes_pods else ())
        ],
        "validations": [{"expression": rule, "message": message} for rule, message in rules],
    }


def _may_create(created: CreatedKind) -> tuple[str, str]:
    """Return CEL that is true if the author of the object may create what the operator creates for it, and
    the message for an author who may not.
    """
    right = f"authorizer.group('{GROUP}').resource('{created.plural}').namespace(request.namespace)"
    message = f"you may not create {created.plural} in this namespace, and Convoy would create them for you"
    return f"!({created.when}) || {right}.check('create').allowed()", message


def _holders(path: str) -> str:
    """Return CEL for the specs of the pod templates at a path of the object.

    The parent of the template must be a required field. If the path has a list of parents, the list must be
    a required field.
    """
    parent, _, field = path.rpartition(".")
    if parent.endswith("[]"):
        parents = f"object.{_single(parent.removesuffix('[]'))}"
    else:
        parents = f"[object.{_single(parent)}]"
    return parents + _SPECS.format(field=field)


def _changed(path: str) -> str:
    """Return CEL that is true if the request changes the pod templates at a path."""
    parent, _, field = path.rpartition(".")
    if parent.endswith("[]"):
        part = parent.removesuffix("[]")
        return f"object.{part} != oldObject.{part}"
    return f"object.{parent}.?{field} != oldObject.{parent}.?{field}"


def _single(path: str) -> str:
    if "[]" in path:
        raise ValueError(f"a pod template path may contain at most one list: {path}")
    return path
