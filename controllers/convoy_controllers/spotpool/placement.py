"""Places a pod on the nodes of a SpotPool."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from convoy_controllers.spotpool.conventions import SPOT_TAINTS
from convoy_crds.selector import NodeSelector
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import CapacityMode
from convoy_crds.terms import ANNOTATION_CAPACITY

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def placed(body: Mapping[str, Any], pool: SpotPool, mode: CapacityMode) -> dict[str, Any]:
    """Return the manifest of a pod with the pool's selector and tolerations.

    They are not part of the intent hash. So a change of the pool does not replace a running pod.
    """
    fresh = copy.deepcopy(dict(body))
    spec = fresh["spec"]
    fresh["metadata"]["annotations"][ANNOTATION_CAPACITY] = mode.value
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
