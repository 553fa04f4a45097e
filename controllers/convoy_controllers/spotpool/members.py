"""The nodes of a pool."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.cached import Node
from convoy_crds.spotpool import SpotPool


def pool_of(pools: Iterable[SpotPool], node: Node) -> SpotPool | None:
    """Return the pool to which a node belongs; None if no pool selects it. If several pools select the node,
    it belongs to the one whose name is first in alphabetical order.
    """
    found = [pool for pool in pools if pool.spec.selector.matches(node.labels)]
    return min(found, key=lambda pool: pool.metadata.name, default=None)
