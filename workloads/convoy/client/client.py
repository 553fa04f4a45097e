"""`convoy.Client`: a client for one namespace of a cluster, with an attribute for each kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from convoy.client.api import Api
from convoy.client.collection import Collection, Deletable, Writable
from convoy.client.experiments import Experiments
from convoy.client.node_healths import NodeHealths
from convoy.client.serving_jobs import ServingJobs
from convoy.client.training_jobs import TrainingJobs
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.experiment import Experiment
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep
from convoy_crds.kind import Kind
from convoy_crds.kinds import KINDS
from convoy_crds.meta import Model
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.servingjob import ServingJob
from convoy_crds.spotpool import SpotPool
from convoy_crds.trainingjob import TrainingJob

M = TypeVar("M", bound=Model)

_COLLECTIONS: Mapping[type[Model], type[Collection[Any]]] = {
    TrainingJob: TrainingJobs,
    ServingJob: ServingJobs,
    Experiment: Experiments,
    NodeHealth: NodeHealths,
    Engine: Collection,
    HardwareClass: Deletable,
}
"""The collection class of each kind whose collection has fewer or more methods than `Writable`."""


class Client:
    """A client for Convoy's objects in one namespace of one cluster.

    Several threads may share a client, because it keeps no state between requests. But each iterator that
    `logs` returns must be used by one thread only.
    """

    training_jobs: TrainingJobs
    serving_jobs: ServingJobs
    experiments: Experiments
    engines: Collection[Engine]
    checkpoint_stores: Writable[CheckpointStore]
    guard_policies: Writable[GuardPolicy]
    health_sweeps: Writable[HealthSweep]
    hardware_classes: Deletable[HardwareClass]
    node_healths: NodeHealths
    spot_pools: Writable[SpotPool]

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | Path | None = None,
        api: Api | None = None,
        kinds: Sequence[Kind[Any]] = KINDS,
    ) -> None:
        """Connect with the first of these that exists: `kubeconfig`, KUBECONFIG, ~/.kube/config, the pod's
        service account.

        - `context`: the kubeconfig context to use; default: the current context.
        - `namespace`: the namespace to work in; default: the namespace of the context or of the pod.
        - `api`: an existing connection to use; the other settings are then ignored.
        - `kinds`: the kinds that become attributes of the client.

        Raises NoCluster if no configuration is found. The constructor sends no request, so an unreachable
        API server is reported by the first request.
        """
        self.api = api or Api.connect(namespace, context, kubeconfig)
        for kind in kinds:
            setattr(self, kind.attribute, _COLLECTIONS.get(kind.model, Writable)(self.api, kind))

    def collection(self, kind: Kind[M]) -> Writable[M]:
        """Return the collection of a kind. The user's rights limit which objects the collection can read
        and write.
        """
        return Writable(self.api, kind)

    @property
    def namespace(self) -> str:
        """Return the namespace in which the client reads and writes objects."""
        return self.api.namespace
