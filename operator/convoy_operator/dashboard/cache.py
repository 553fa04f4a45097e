"""The dashboard's cache of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from convoy_controllers.cached import Node, Pod
from convoy_controllers.resources import NODES, PODS, resource_of
from convoy_crds import (
    checkpointstore,
    engine,
    experiment,
    guardpolicy,
    hardwareclass,
    healthsweep,
    nodehealth,
    servingjob,
    spotpool,
    trainingjob,
)
from convoy_crds.engine import Engine
from convoy_crds.experiment import Experiment
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.kind import Kind
from convoy_crds.kinds import KINDS
from convoy_crds.meta import Model
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.servingjob import ServingJob
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob
from convoy_operator import views
from convoy_operator.cache import Store
from convoy_operator.dashboard.core import experiments, jobs, serving_jobs
from convoy_operator.dashboard.core.nodes import by_node
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of
from convoy_operator.dashboard.core.restarts import RestartHistory
from convoy_operator.dashboard.core.row_cache import RowCache
from convoy_operator.dashboard.core.series import Curves
from convoy_operator.dashboard.core.traffic_series import TrafficCurves
from convoy_operator.dashboard.feed import Feed
from convoy_operator.gateway import ApiGateway
from convoy_operator.metrics import Metrics
from convoy_operator.reflector import Reflector, Source

M = TypeVar("M", bound=Model)


class DashboardCache:
    """The stores of all watched resources, and the history of each job: its curves and its restarts."""

    def __init__(self, feed: Feed, kinds: Sequence[Kind[Any]] = KINDS) -> None:
        self._kinds = {kind.plural: kind for kind in kinds}
        self._objects: dict[str, Store[ParsedObject[Any]]] = {plural: Store() for plural in self._kinds}
        self.jobs = self.objects(trainingjob.KIND)
        self.servers = self.objects(servingjob.KIND)
        self.experiments = self.objects(experiment.KIND)
        self.healths = self.objects(nodehealth.KIND)
        self.sweeps = self.objects(healthsweep.KIND)
        self.classes = self.objects(hardwareclass.KIND)
        self.policies = self.objects(guardpolicy.KIND)
        self.checkpoint_stores = self.objects(checkpointstore.KIND)
        self.engines = self.objects(engine.KIND)
        self.pools = self.objects(spotpool.KIND)
        self.pods: Store[Pod] = Store(index=lambda pod: (pod.namespace, pod.job))
        self.nodes: Store[Node] = Store()
        self.curves = Curves()
        self.restarts = RestartHistory()
        self.rows = RowCache(jobs.row)
        self.traffic = TrafficCurves()
        self.serving_rows = RowCache(serving_jobs.row)
        self.experiment_rows = RowCache(experiments.row)
        self._feed = feed
        self.jobs.listen(self._on_job)
        self.servers.listen(self._on_server)
        self.experiments.listen(self._on_experiment)
        self.nodes.listen(self._on_node)
        self.pods.listen(self._on_other)
        for store in self._objects.values():
            if store not in (self.jobs, self.servers, self.experiments):
                store.listen(self._on_other)

    def objects(self, kind: Kind[M]) -> Store[ParsedObject[M]]:
        """Return the objects of one of Convoy's kinds."""
        return self._objects[kind.plural]

    def reflectors(self, gateway: ApiGateway, metrics: Metrics) -> dict[str, Reflector[Any]]:
        """Return the reflectors that fill the stores, by the resource's plural name."""
        found: dict[str, Reflector[Any]] = {
            PODS.plural: Reflector(gateway, Source(PODS, self.pods, views.pod, LABEL_JOB), metrics),
            NODES.plural: Reflector(gateway, Source(NODES, self.nodes, views.node), metrics),
        }
        for plural, kind in self._kinds.items():
            store = self._objects[plural]
            found[plural] = Reflector(
                gateway, Source(resource_of(kind), store, parser_of(kind.model)), metrics
            )
        return found

    def health_by_node(self) -> dict[str, NodeHealth]:
        """Return the NodeHealth of the hardware that each existing node has, by node name."""
        return by_node(self.healths, self.nodes)

    def policies_by_name(self) -> Mapping[str, GuardPolicy]:
        """Return the GuardPolicies by name, except those that this version of the dashboard cannot parse."""
        return {parsed.name: parsed.model for parsed in self.policies if parsed.model is not None}

    def pods_per_node(self) -> Counter[str]:
        """Return the number of unfinished pods of jobs on each node. The cache holds only pods with a job's
        label.
        """
        return Counter(pod.view.node for pod in self.pods if pod.view.node and pod.view.needs_node)

    def pods_of(self, job: ParsedObject[Any]) -> list[Pod]:
        """Return the pods that the job owns. The job label is not enough, because any user can set it on a
        pod.
        """
        return [pod for pod in self.pods.indexed((job.namespace, job.name)) if pod.view.owner_uid == job.uid]

    def nodes_of(self, pods: Iterable[Pod]) -> dict[str, Node]:
        """Return the nodes of these pods, by name. Deleted nodes are missing."""
        names = {pod.view.node for pod in pods if pod.view.node}
        return {name: node for name in names if (node := self.nodes.get("", name)) is not None}

    def engine_of(self, job: TrainingJob) -> Engine | None:
        """Return the job's Engine. Return None if the job names none or the Engine does not exist."""
        parsed = self.engines.get("", job.spec.engine.name) if job.spec.engine else None
        return parsed.model if parsed is not None else None

    def _on_job(
        self, before: ParsedObject[TrainingJob] | None, after: ParsedObject[TrainingJob] | None, own: bool
    ) -> None:
        if after is None or (before is not None and before.uid != after.uid):
            removed_uid = before.uid if before is not None else ""
            for records in (self.curves, self.restarts, self.rows):
                records.remove(removed_uid)
        if after is not None and after.model is not None:
            self.curves.record(after.uid, after.model.status.progress, datetime.now(UTC))
            self.restarts.record(after.uid, after.model.status)
        self._feed.notify()

    def _on_server(
        self, before: ParsedObject[ServingJob] | None, after: ParsedObject[ServingJob] | None, own: bool
    ) -> None:
        if after is None or (before is not None and before.uid != after.uid):
            removed_uid = before.uid if before is not None else ""
            self.traffic.remove(removed_uid)
            self.serving_rows.remove(removed_uid)
        if after is not None and after.model is not None:
            self.traffic.record(after.uid, after.model.status.traffic, datetime.now(UTC))
        self._feed.notify()

    def _on_experiment(
        self, before: ParsedObject[Experiment] | None, after: ParsedObject[Experiment] | None, own: bool
    ) -> None:
        if before is not None and (after is None or before.uid != after.uid):
            self.experiment_rows.remove(before.uid)
        self._feed.notify()

    def _on_node(self, before: Node | None, after: Node | None, own: bool) -> None:
        # Update pages only if a shown field changes, because kubelets update their nodes often.
        if before is None or after is None or _displayed(before) != _displayed(after):
            self._feed.notify()

    def _on_other(self, before: object, after: object, own: bool) -> None:
        self._feed.notify()


def _displayed(node: Node) -> tuple[object, ...]:
    return node.uid, node.ready, node.cordoned, node.agent_ready, node.labels
