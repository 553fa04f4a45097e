"""CEL expressions that compare two versions of a spec, ignoring whether a default is written or left out.

The models, not the API server, fill in a default inside a list (`applied.py`). A manifest without the
default must therefore equal a stored job that has it, and the reverse. Some users write defaults, and an
earlier schema made the server store them. Without this comparison the API server would reject the same
manifest, applied again, while the job runs.
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
"""Typed fields of a pod spec, except its containers."""
_ZONE = "'topology.kubernetes.io/zone'"
_HAS_CONTAINERS = "has(r.template) && has(r.template.spec) && has(r.template.spec.containers)"


def roles(now: str, before: str) -> str:
    """Return CEL that is true if two lists of roles define the same pods in the same order.

    If a container's default name is added or removed, the CEL compares only typed fields. The operator
    compares all fields.
    """
    meta = ("r.?template.?metadata.?labels", "r.?template.?metadata.?annotations")
    plain = ("r.replicas", "r.?minReplicas", "r.?processesPerReplica.orValue(1)", *meta)
    same = " && ".join(_each(now, before, field) for field in plain)
    # The operator == ignores the order of a list with keys.
    order = _each(now, before, "r.name")
    return f"({order} && ({now} == {before} || ({same} && {_specs(now, before)})))"


def checkpoint(now: str, before: str) -> str:
    """Return CEL that is true if two checkpoint sections are equal."""
    parents = ("tiers", "tiers.peer", "resumeFrom")
    tiers, peer, source = ((f"{now}.{name}", f"{before}.{name}") for name in parents)
    copies = f"{_default(*peer, 'copies', '1')} && {_default(*peer, 'topologyKey', _ZONE)}"
    step = f"{_same(*source, 'job')} && {_same(*source, 'uid')} && {_default(*source, 'step', '0')}"
    parts = (
        f"{now}.interval == {before}.interval",
        _same(*tiers, "local"),
        _same(*tiers, "remote"),
        _both(*peer, copies),
        _both(*source, step),
    )
    return f"({now} == {before} || ({' && '.join(parts)}))"


def _specs(now: str, before: str) -> str:
    """Return CEL that is true if the templates' pod specs are equal, apart from default container names."""
    named = _containers("has(c.name)")
    fields = [
        _containers("has(c.name) ? c.name : 'worker'"),
        *(_containers(f"c.?{name}") for name in _CONTAINER),
        *(f"r.?template.?spec.?{name}" for name in _SPEC),
    ]
    rest = " && ".join(_each(now, before, field) for field in fields)
    return f"({_each(now, before, 'r.?template.?spec')} || (!({_each(now, before, named)}) && {rest}))"


def _containers(value: str) -> str:
    """Return CEL for a value of each container `c` of role `r`.

    An orValue([]) instead would hide the list's maximum length from the API server's cost estimate.
    """
    return f"({_HAS_CONTAINERS} ? r.template.spec.containers.map(c, {value}) : [])"


def _each(now: str, before: str, value: str) -> str:
    """Return CEL that is true if the roles `r` of two lists have equal values, pair by pair."""
    return f"{now}.map(r, {value}) == {before}.map(r, {value})"


def _both(now: str, before: str, same: str) -> str:
    """Return CEL that is true if two optional objects are both absent, or both present and equal."""
    return f"has({now}) == has({before}) && (!has({now}) || ({same}))"


def _same(now: str, before: str, name: str) -> str:
    """Return CEL that is true if an optional field is equal in two objects."""
    return _both(f"{now}.{name}", f"{before}.{name}", f"{now}.{name} == {before}.{name}")


def _default(now: str, before: str, name: str, default: str) -> str:
    """Return CEL that is true if a field with a default is equal in two objects."""
    return " == ".join(f"(has({one}.{name}) ? {one}.{name} : {default})" for one in (now, before))
