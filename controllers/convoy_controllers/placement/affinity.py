"""Adds the chosen nodes to a pod, as node affinity.

The scheduler still decides: it knows volumes, devices and ports, which the choice does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from convoy_controllers.placement.topology import Path
from convoy_crds.terms import ANNOTATION_PLANNED_NODE

DOMAIN_WEIGHT = 60
"""Preference for the chosen domain of the nearest key; each farther key has half of it. The plugin
NodeAffinity scales the sum of a node's weights to 100, so only the proportions matter.
"""
NODE_WEIGHT = 20
"""Preference for the chosen node itself."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pinned(
    manifest: Mapping[str, Any],
    keys: Sequence[str],
    path: Path,
    node: str,
    *,
    required: bool,
    within: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the pod's manifest with the choice. `path`: names of the chosen domains, the nearest key first.
    `node`: the chosen node; empty for none.

    With `required`, the pod may run only in the chosen domain of the first key. Otherwise it may run only in
    the domains `within` of the first key; in all if there are none. The choice is not part of the intent
    hash, so that another choice does not replace a running pod.
    """
    affinity = dict(manifest["spec"].get("affinity") or {})
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    metadata = dict(manifest["metadata"])
    known = [(key, name) for key, name in zip(keys, path, strict=True) if name]
    needed = [{"key": key, "operator": "In", "values": [name]} for key, name in known] if required else []
    if within and not required:
        needed = [{"key": keys[0], "operator": "In", "values": list(within)}]
    if needed:
        selector = node_affinity.get(_REQUIRED) or {}
        terms = selector.get("nodeSelectorTerms") or [{}]
        node_affinity[_REQUIRED] = {
            **selector,
            "nodeSelectorTerms": [
                {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *needed]}
                for term in terms
            ],
        }
    preferred = list(node_affinity.get(_PREFERRED) or ())
    weight = DOMAIN_WEIGHT
    for key, name in known:
        expression = {"key": key, "operator": "In", "values": [name]}
        preferred.append({"weight": weight, "preference": {"matchExpressions": [expression]}})
        weight = max(1, weight // 2)
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        preferred.append({"weight": NODE_WEIGHT, "preference": {"matchFields": [field]}})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION_PLANNED_NODE: node}
    if preferred:
        node_affinity[_PREFERRED] = preferred
    spec = {**manifest["spec"], "affinity": {**affinity, "nodeAffinity": node_affinity}}
    return {**manifest, "metadata": metadata, "spec": spec}
