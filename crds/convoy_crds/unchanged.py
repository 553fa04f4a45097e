"""Builds CEL expressions that compare two versions of a spec. They treat a default that is written out and
a default that is left out as equal.

Inside a list, the models fill in a default, not the API server (`applied.py`). One manifest may contain the
default, and another may not. An earlier schema also made the server store some defaults. Both forms must
count as equal. Otherwise the API server would reject an unchanged manifest that is applied again while the
job runs.
"""

from __future__ import annotations

_CONTAINER = ("image", "command", "args", "env", "volumeMounts", "resources", "securityContext")
_SPEC = (
    "initContainers",
    "volumes",
    "nodeSelector",
    "tolerations",
    "affinity",
    "securityContext",
    "terminationGracePeriodSeconds",
)
"""Names of the typed fields of a pod spec, except its containers."""
_ZONE = "'topology.kubernetes.io/zone'"
_HAS_CONTAINERS = "has(r.template) && has(r.template.spec) && has(r.template.spec.containers)"


def roles(now: str, before: str) -> str:
    """Return CEL that is true if two lists of roles define the same pods in the same order.

    If a container's default name is added or removed, the CEL compares only the typed fields. The operator
    compares all fields later.
    """
    meta = ("r.?template.?metadata.?labels", "r.?template.?metadata.?annotations")
    plain = (
        "r.replicas",
        "r.?minReplicas",
        "r.?processesPerReplica.orValue(1)",
        "r.?membership.orValue('Member')",
        "r.?budget.?maxRestarts.orValue(10)",
        "r.?budget.?maxPreemptions",
        "r.?budget.?windowSeconds.orValue(3600)",
        "r.?spotPool",
        *meta,
    )
    same = " && ".join(_each(now, before, field) for field in plain)
    # Compare the order explicitly, because the operator == ignores the order of a list with keys.
    order = _each(now, before, "r.name")
    return f"({order} && ({now} == {before} || ({same} && {_specs(now, before)})))"


def checkpoint(now: str, before: str) -> str:
    """Return CEL that is true if two `checkpoint` sections are equal."""
    parents = ("tiers", "tiers.peer", "resumeFrom")
    tiers, peer, source = ((f"{now}.{name}", f"{before}.{name}") for name in parents)
    copies = f"{_default(*peer, 'copies', '1')} && {_default(*peer, 'topologyKey', _ZONE)}"
    step = f"{_same(*source, 'job')} && {_same(*source, 'uid')} && {_default(*source, 'step', '0')}"
    parts = (
        f"{now}.interval == {before}.interval",
        _same(now, before, "default"),
        _same(*tiers, "local"),
        _same(*tiers, "remote"),
        _both(*peer, copies),
        _both(*source, step),
    )
    return f"({now} == {before} || ({' && '.join(parts)}))"


def placement(now: str, before: str) -> str:
    """Return CEL that is true if two `placement` sections are equal, except `shrinkFirst`, which may change
    at any time.
    """
    parts = (
        f"{now}.gang == {before}.gang",
        f"{now}.pack == {before}.pack",
        _same(now, before, "topologyKeys"),
    )
    return f"({now} == {before} || ({' && '.join(parts)}))"


def _specs(now: str, before: str) -> str:
    """Return CEL that is true if the pod specs of the templates are equal. Default names of containers are
    ignored.
    """
    named = _containers("has(c.name)")
    fields = [
        _containers("has(c.name) ? c.name : 'worker'"),
        *(_containers(f"c.?{name}") for name in _CONTAINER),
        *(f"r.?template.?spec.?{name}" for name in _SPEC),
    ]
    rest = " && ".join(_each(now, before, field) for field in fields)
    return f"({_each(now, before, 'r.?template.?spec')} || (!({_each(now, before, named)}) && {rest}))"


def _containers(value: str) -> str:
    """Return CEL for the list of the values `value` of the containers `c` in role `r`.

    The CEL does not use orValue([]), because it would hide the list's maximum length from the API server's
    cost estimate.
    """
    return f"({_HAS_CONTAINERS} ? r.template.spec.containers.map(c, {value}) : [])"


def _each(now: str, before: str, value: str) -> str:
    """Return CEL that is true if `value` is equal for each pair of roles `r` in two lists."""
    return f"{now}.map(r, {value}) == {before}.map(r, {value})"


def _both(now: str, before: str, same: str) -> str:
    """Return CEL that is true if two optional objects are both absent, or if both are present and `same` is
    true.
    """
    return f"has({now}) == has({before}) && (!has({now}) || ({same}))"


def _same(now: str, before: str, name: str) -> str:
    """Return CEL that is true if the optional field `name` is equal in two objects."""
    return _both(f"{now}.{name}", f"{before}.{name}", f"{now}.{name} == {before}.{name}")


def _default(now: str, before: str, name: str, default: str) -> str:
    """Return CEL that is true if the field `name` is equal in two objects. An absent field has the value
    `default`.
    """
    return " == ".join(f"(has({one}.{name}) ? {one}.{name} : {default})" for one in (now, before))
