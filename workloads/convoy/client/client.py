"""`convoy.Client`: a client for one namespace of a cluster, with an attribute for each kind."""

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
"""Kinds whose collection has fewer or more methods than `Writable`."""


class Client:
    """A client for Convoy's objects in one namespace of one cluster.

    Threads may share a client: it keeps no state between requests. An iterator of `training_jobs.logs`
    belongs to one thread.
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
        """Connect with `kubeconfig`, else KUBECONFIG, else ~/.kube/config, else the pod's service account.

        - `context`: a context of the kubeconfig; default: its current context.
        - `namespace`: default: the namespace of the context or of the pod.
        - `api`: a connection to use in place of the above.
        - `kinds`: the kinds that become attributes.

        Raises NoCluster if no configuration is found. The first request shows whether the server responds.
        """
        self.api = api or Api.connect(namespace, context, kubeconfig)
        for kind in kinds:
            setattr(self, kind.attribute, _COLLECTIONS.get(kind.model, Writable)(self.api, kind))

    def collection(self, kind: Kind[M]) -> Writable[M]:
        """Return the collection of a kind. The user's rights limit what it can read and write."""
        return Writable(self.api, kind)

    @property
    def namespace(self) -> str:
        """The namespace that the client works in."""
        return self.api.namespace
