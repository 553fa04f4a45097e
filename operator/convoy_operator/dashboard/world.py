"""Everything the dashboard watches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from convoy_controllers.cached import Node, Pod
from convoy_controllers.resources import (
    CHECKPOINT_STORES,
    ENGINES,
    GUARD_POLICIES,
    HARDWARE_CLASSES,
    HEALTH_SWEEPS,
    NODE_HEALTHS,
    NODES,
    PODS,
    TRAINING_JOBS,
)
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import views
from convoy_operator.cache import Store
from convoy_operator.dashboard.core.jobs import RowCache
from convoy_operator.dashboard.core.nodes import by_node
from convoy_operator.dashboard.core.objects import Kept, keeper
from convoy_operator.dashboard.core.restarts import Histories
from convoy_operator.dashboard.core.series import Curves
from convoy_operator.dashboard.feed import Feed
from convoy_operator.gateway import ApiGateway
from convoy_operator.metrics import Metrics
from convoy_operator.reflector import Reflector


class World:
    """The stores of all watched resources, and the jobs' curves and restarts."""

    def __init__(self, feed: Feed) -> None:
        self.jobs: Store[Kept[TrainingJob]] = Store()
        self.pods: Store[Pod] = Store(index=lambda pod: (pod.namespace, pod.job))
        self.nodes: Store[Node] = Store()
        self.healths: Store[Kept[NodeHealth]] = Store()
        self.sweeps: Store[Kept[HealthSweep]] = Store()
        self.classes: Store[Kept[HardwareClass]] = Store()
        self.policies: Store[Kept[GuardPolicy]] = Store()
        self.checkpoint_stores: Store[Kept[CheckpointStore]] = Store()
        self.engines: Store[Kept[Engine]] = Store()
        self.curves = Curves()
        self.restarts = Histories()
        self.rows = RowCache()
        self._feed = feed
        self.jobs.listen(self._job)
        self.nodes.listen(self._node)
        for store in (
            self.pods, self.healths, self.sweeps, self.classes, self.policies, self.checkpoint_stores,
            self.engines,
        ):  # fmt: skip
            store.listen(self._other)

    def reflectors(self, gateway: ApiGateway, metrics: Metrics) -> dict[str, Reflector[Any]]:
        """What fills the stores, by resource."""
        return {
            "trainingjobs": Reflector(gateway, TRAINING_JOBS, self.jobs, keeper(TrainingJob), metrics),
            "pods": Reflector(gateway, PODS, self.pods, views.pod, metrics, selector=LABEL_JOB),
            "nodes": Reflector(gateway, NODES, self.nodes, views.node, metrics),
            "nodehealths": Reflector(gateway, NODE_HEALTHS, self.healths, keeper(NodeHealth), metrics),
            "healthsweeps": Reflector(gateway, HEALTH_SWEEPS, self.sweeps, keeper(HealthSweep), metrics),
            "hardwareclasses": Reflector(
                gateway, HARDWARE_CLASSES, self.classes, keeper(HardwareClass), metrics
            ),
            "guardpolicies": Reflector(gateway, GUARD_POLICIES, self.policies, keeper(GuardPolicy), metrics),
            "checkpointstores": Reflector(
                gateway, CHECKPOINT_STORES, self.checkpoint_stores, keeper(CheckpointStore), metrics
            ),
            "engines": Reflector(gateway, ENGINES, self.engines, keeper(Engine), metrics),
        }

    def health_by_node(self) -> dict[str, NodeHealth]:
        """The hardware that each node is."""
        return by_node(self.healths, self.nodes)

    def policies_by_name(self) -> Mapping[str, GuardPolicy]:
        """Those that can be read."""
        return {kept.name: kept.model for kept in self.policies if kept.model is not None}

    def pods_per_node(self) -> Counter[str]:
        """Pods of jobs that have not ended."""
        return Counter(pod.view.node for pod in self.pods if pod.view.node and pod.view.needs_node)

    def pods_of(self, job: Kept[TrainingJob]) -> list[Pod]:
        """A job's own: anybody may give a pod its label."""
        return [pod for pod in self.pods.indexed((job.namespace, job.name)) if pod.view.owner_uid == job.uid]

    def engine_of(self, job: TrainingJob) -> Engine | None:
        """Return the Engine that the job names; None without one, and while there is none of that name."""
        kept = self.engines.get("", job.spec.engine.name) if job.spec.engine else None
        return kept.model if kept is not None else None

    def _job(self, before: Kept[TrainingJob] | None, after: Kept[TrainingJob] | None, own: bool) -> None:
        if after is None or (before is not None and before.uid != after.uid):
            gone = before.uid if before is not None else ""
            for memory in (self.curves, self.restarts, self.rows):
                memory.forget(gone)
        if after is not None and after.model is not None:
            self.curves.see(after.uid, after.model.status.progress, datetime.now(UTC))
            self.restarts.see(after.uid, after.model.status)
        self._feed.ring()

    def _node(self, before: Node | None, after: Node | None, own: bool) -> None:
        # Kubelets write to their nodes all the time; little of it is shown.
        if before is None or after is None or _shown(before) != _shown(after):
            self._feed.ring()

    def _other(self, before: object, after: object, own: bool) -> None:
        self._feed.ring()


def _shown(node: Node) -> tuple[object, ...]:
    return node.uid, node.ready, node.cordoned, node.agent_ready
