"""CEL under which a spec is the same as before, whether a default is written down or left out.

A default inside a list is filled in by the models, not by the API server (`applied.py`). A file that leaves
it out must equal a stored job that names it, and the other way round: some users write defaults, and an
earlier schema had the server store them. Otherwise the same file, applied again, would be refused while the
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
"""Typed fields of a pod spec, but for its containers."""
_ZONE = "'topology.kubernetes.io/zone'"
_HAS_CONTAINERS = "has(r.template) && has(r.template.spec) && has(r.template.spec.containers)"


def roles(now: str, before: str) -> str:
    """CEL: whether two lists of roles ask for the same pods, numbered in the same order.

    Where the default name of a container comes or goes, fields that no schema names are not compared. The
    operator compares all.
    """
    meta = ("r.?template.?metadata.?labels", "r.?template.?metadata.?annotations")
    plain = ("r.replicas", "r.?minReplicas", "r.?processesPerReplica.orValue(1)", *meta)
    same = " && ".join(_each(now, before, field) for field in plain)
    # == does not see the order of a list with keys.
    order = _each(now, before, "r.name")
    return f"({order} && ({now} == {before} || ({same} && {_specs(now, before)})))"


def checkpoint(now: str, before: str) -> str:
    """CEL: whether two checkpoint sections ask for the same."""
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
    """CEL: whether the templates' pod specs are the same but for the default name of containers."""
    named = _containers("has(c.name)")
    fields = [
        _containers("has(c.name) ? c.name : 'worker'"),
        *(_containers(f"c.?{name}") for name in _CONTAINER),
        *(f"r.?template.?spec.?{name}" for name in _SPEC),
    ]
    rest = " && ".join(_each(now, before, field) for field in fields)
    return f"({_each(now, before, 'r.?template.?spec')} || (!({_each(now, before, named)}) && {rest}))"


def _containers(value: str) -> str:
    """CEL: a value of each container `c` of role `r`. An orValue([]) would hide how many there may be."""
    return f"({_HAS_CONTAINERS} ? r.template.spec.containers.map(c, {value}) : [])"


def _each(now: str, before: str, value: str) -> str:
    """CEL: whether roles `r` of two lists have the same value, one by one."""
    return f"{now}.map(r, {value}) == {before}.map(r, {value})"


def _both(now: str, before: str, same: str) -> str:
    """CEL: whether two optional objects are both absent, or there and the same."""
    return f"has({now}) == has({before}) && (!has({now}) || ({same}))"


def _same(now: str, before: str, name: str) -> str:
    """CEL: whether an optional field is the same in two objects."""
    return _both(f"{now}.{name}", f"{before}.{name}", f"{now}.{name} == {before}.{name}")


def _default(now: str, before: str, name: str, default: str) -> str:
    """CEL: whether a field with a default is the same in two objects."""
    return " == ".join(f"(has({one}.{name}) ? {one}.{name} : {default})" for one in (now, before))
