"""Decides whether a pod may run on a node, by the node's labels and taints. These are the rules of
kube-scheduler's plugins NodeAffinity, TaintToleration and NodeUnschedulable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_BLOCKING = ("NoSchedule", "NoExecute")


def may_run(spec: Mapping[str, Any], name: str, labels: Mapping[str, str], taints: Iterable[Any]) -> bool:
    """Return True if the pod spec's node selector, required node affinity and tolerations admit the node."""
    return _selected(spec, name, labels) and _tolerated(spec.get("tolerations") or (), taints)


def _selected(spec: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(matches(term, name, labels) for term in required.get("nodeSelectorTerms") or ())


def matches(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Return True if all expressions of a node selector term match. A term without expressions matches no
    node.
    """
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and (
        all(_expression(one, labels) for one in expressions)
        and all(_expression(one, {"metadata.name": name}) for one in fields)
    )


def _expression(one: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(one["key"]), list(map(str, one.get("values") or ()))
    match one["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _compared(value, values, above=True)
        case "Lt":
            return _compared(value, values, above=False)
    return False


def _compared(value: str | None, values: Sequence[str], *, above: bool) -> bool:
    try:
        difference = int(value or "") - int(values[0])
    except (ValueError, IndexError):
        return False
    return difference > 0 if above else difference < 0


def _tolerated(tolerations: Sequence[Mapping[str, Any]], taints: Iterable[Mapping[str, Any]]) -> bool:
    blocking = [taint for taint in taints if taint.get("effect") in _BLOCKING]
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in blocking)


def _tolerates(one: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if one.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not one.get("key"):
        return one.get("operator") == "Exists"
    if one["key"] != taint.get("key"):
        return False
    return one.get("operator") == "Exists" or (one.get("value") or "") == (taint.get("value") or "")
