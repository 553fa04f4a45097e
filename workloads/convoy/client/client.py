"""`convoy.Client`: one cluster and namespace, its kinds as attributes."""

from __future__ import annotations

from pathlib import Path

from convoy.client.api import Api
from convoy.client.collection import Collection, Deletable, Writable
from convoy.client.node_healths import NodeHealths
from convoy.client.training_jobs import TrainingJobs
from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.hardwareclass import HardwareClass
from convoy_crds.healthsweep import HealthSweep


class Client:
    """What a user does with Convoy in one namespace of one cluster.

    Threads may share it: requests go through a pool of connections, and nothing is kept between them. An
    iterator of `logs` is for one thread.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | Path | None = None,
        api: Api | None = None,
    ) -> None:
        """By `kubeconfig`, else by KUBECONFIG, else by ~/.kube/config, else by the pod's service account.

        `context`: of the kubeconfig; its current one by default. `namespace`: by default the context's, or
        the pod's. `api`: instead of all these. Raises NoCluster when nothing leads to a cluster; whether the
        API server answers is seen at the first request.
        """
        self.api = api or Api.connect(namespace, context, kubeconfig)
        self.training_jobs = TrainingJobs(self.api)
        self.engines: Collection[Engine] = Collection(self.api, Engine)
        self.checkpoint_stores: Writable[CheckpointStore] = Writable(self.api, CheckpointStore)
        self.guard_policies: Writable[GuardPolicy] = Writable(self.api, GuardPolicy)
        self.health_sweeps: Writable[HealthSweep] = Writable(self.api, HealthSweep)
        self.hardware_classes: Deletable[HardwareClass] = Deletable(self.api, HardwareClass)
        self.node_healths = NodeHealths(self.api)

    @property
    def namespace(self) -> str:
        """The namespace of its jobs."""
        return self.api.namespace
