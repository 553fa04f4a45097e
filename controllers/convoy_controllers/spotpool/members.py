"""The nodes of a pool, and the pools of a job."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.cached import Node
from convoy_crds.spotpool import SpotPool
from convoy_crds.trainingjob import TrainingJob

POOL_FIELD = "spec.roles[].spotPool"
"""Path of the field by which a role of a job names its SpotPool."""


def pool_of(pools: Iterable[SpotPool], node: Node) -> SpotPool | None:
    """Return the pool to which a node belongs; None if no pool selects it. If several pools select the node,
    it belongs to the one whose name is first in alphabetical order.
    """
    found = [pool for pool in pools if pool.spec.selector.matches(node.labels)]
    return min(found, key=lambda pool: pool.metadata.name, default=None)


def pools_of(job: TrainingJob) -> Iterable[str]:
    """Return the names of the pools that the roles of a job name, each once."""
    return dict.fromkeys(role.spot_pool for role in job.spec.roles if role.spot_pool)
