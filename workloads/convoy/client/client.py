"""`convoy.Client`: one cluster and namespace, its kinds as attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from convoy.client.api import Api
from convoy.client.collection import Collection, Deletable, Writable
from convoy.client.node_healths import NodeHealths
from convoy.client.training_jobs import TrainingJobs
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.kind import Kind
from convoy_crds.kinds import KINDS
from convoy_crds.meta import Model
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.trainingjob import TrainingJob

M = TypeVar("M", bound=Model)

_COLLECTIONS: Mapping[type[Model], type[Collection[Any]]] = {
    TrainingJob: TrainingJobs,
    NodeHealth: NodeHealths,
    Engine: Collection,
    HardwareClass: Deletable,
}
"""Collections with fewer methods than `Writable`, or more."""


class Client:
    """What a user does with Convoy in one namespace of one cluster.

    Threads may share it: requests go through a pool of connections, and nothing is kept between them. An
    iterator of `logs` is for one thread.
    """

    training_jobs: TrainingJobs
    engines: Collection[Engine]
    checkpoint_stores: Writable[CheckpointStore]
    guard_policies: Writable[GuardPolicy]
    health_sweeps: Writable[HealthSweep]
    hardware_classes: Deletable[HardwareClass]
    node_healths: NodeHealths

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | Path | None = None,
        api: Api | None = None,
        kinds: Sequence[Kind[Any]] = KINDS,
    ) -> None:
        """By `kubeconfig`, else by KUBECONFIG, else by ~/.kube/config, else by the pod's service account.

        `context`: of the kubeconfig; its current one by default. `namespace`: by default the context's, or
        the pod's. `api`: instead of all these. Raises NoCluster when nothing leads to a cluster; whether the
        API server answers is seen at the first request. `kinds`: those that become attributes.
        """
        self.api = api or Api.connect(namespace, context, kubeconfig)
        for kind in kinds:
            setattr(self, kind.attribute, _COLLECTIONS.get(kind.model, Writable)(self.api, kind))

    def collection(self, kind: Kind[M]) -> Writable[M]:
        """Return the objects of a kind, to be read and written as far as the user's rights go."""
        return Writable(self.api, kind)

    @property
    def namespace(self) -> str:
        """The namespace of its jobs."""
        return self.api.namespace
