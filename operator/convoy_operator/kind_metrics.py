"""The metrics that only some kinds have. All other metrics of kinds follow from their controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from convoy_controllers.cached import CachedObject
from convoy_controllers.reader import Reader
from convoy_crds import experiment, spotpool
from convoy_crds.kind import Kind
from convoy_operator.experiment_metrics import ExperimentMetrics
from convoy_operator.spot_metrics import SpotMetrics

Objects = Callable[[Kind[Any]], Iterable[CachedObject]]
"""(kind) -> the stored objects of the kind, valid or not."""


class KindMetrics:
    """The metrics of single kinds. A kind with metrics has a class of gauges and a line in both methods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.experiments = ExperimentMetrics(registry)
        self.spot_pools = SpotMetrics(registry)

    def show(self, objects: Objects, reader: Reader, leads: bool) -> None:
        """Set the gauges. A replica that does not lead counts no objects, so a sum over all replicas counts
        each of them once.
        """
        self.experiments.show(one.status for one in objects(experiment.KIND) if leads)
        self.spot_pools.show(reader.all(spotpool.KIND) if leads else (), datetime.now(UTC))
