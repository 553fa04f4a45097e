"""Places a pod on the nodes of a SpotPool."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from convoy_controllers.spotpool.conventions import SPOT_TAINTS
from convoy_crds.selector import NodeSelector
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import CapacityMode
from convoy_crds.terms import ANNOTATION_CAPACITY, ANNOTATION_PLACEMENT

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def placed(body: Mapping[str, Any], pool: SpotPool, mode: CapacityMode) -> dict[str, Any]:
    """Return the manifest of a pod with the pool's selector and tolerations.

    They are not part of the intent hash. So a change of the pool does not replace a running pod. A pod that
    still waits for a node is replaced, because it could wait for a node that never comes.
    """
    fresh = copy.deepcopy(dict(body))
    spec = fresh["spec"]
    marks = {ANNOTATION_CAPACITY: mode.value, ANNOTATION_PLACEMENT: _placement(pool, mode)}
    fresh["metadata"]["annotations"].update(marks)
    selector = _selector(pool, mode)
    spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **selector.match_labels}
    expressions = [
        one.to_dict() if one.values else {"key": one.key, "operator": one.operator}
        for one in selector.match_expressions
    ]
    if expressions:
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        # The scheduler needs one of the terms, and all expressions of this term.
        terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
        affinity[_REQUIRED] = {
            "nodeSelectorTerms": [
                {**term, "matchExpressions": [*term.get("matchExpressions", ()), *expressions]}
                for term in terms
            ]
        }
    if mode is CapacityMode.SPOT:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *_tolerations(pool)]
    return fresh


def is_outdated(annotations: Mapping[str, str], pool: SpotPool, mode: CapacityMode) -> bool:
    """Return True if a pod was created for another capacity, or with settings that the pool has no longer."""
    if annotations.get(ANNOTATION_CAPACITY, CapacityMode.SPOT) != mode:
        return True
    current = _placement(pool, mode)
    return annotations.get(ANNOTATION_PLACEMENT, current) != current


def _placement(pool: SpotPool, mode: CapacityMode) -> str:
    """Return a hash of all that the pool sets in a pod."""
    tolerations = list(_tolerations(pool)) if mode is CapacityMode.SPOT else []
    settings = [_selector(pool, mode).to_dict(), tolerations]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _selector(pool: SpotPool, mode: CapacityMode) -> NodeSelector:
    fallback = pool.spec.fallback
    if mode is CapacityMode.ON_DEMAND and fallback is not None:
        return fallback.on_demand_selector
    return pool.spec.selector


def _tolerations(pool: SpotPool) -> Iterator[dict[str, Any]]:
    for taint in SPOT_TAINTS:
        yield {"key": taint, "operator": "Exists", "effect": "NoSchedule"}
    for one in pool.spec.tolerations:
        yield one.to_dict()
