"""Placement: how the pods of a gang are placed together, near each other, and in the order of the ranks."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Model, Rule, StatusModel, validated

MAX_KEYS = 4
"""Maximum number of topology keys."""
MAX_CLAIMS = 256
"""Maximum number of pods of other jobs that one job may ask for."""
MAX_DOMAINS = 32
"""Maximum number of domains of one key in a status."""

MAX_CANDIDATES = 8
"""Maximum number of places in the ranking of a job."""
LEAST_BUCKET = 1024
"""Minimum number of bytes of a bucket of gradients."""
LABEL_HOST_RATE = "convoy.dev/host-gbit"
"""Node label with the rate of the link between the node and its rack, in Gbit/s."""
LABEL_UPLINK_RATE = "convoy.dev/uplink-gbit"
"""Node label with the rate of the link between the node's rack and the other racks, in Gbit/s."""

LabelKey = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        min_length=1,
        max_length=317,
    ),
]
"""Key of a node label, such as `topology.kubernetes.io/zone`."""


class GangBackend(StrEnum):
    """Scheduler feature that starts all pods of a gang or none."""

    AUTO = "Auto"
    """The first of Native, Coscheduling and Volcano that the cluster has, otherwise None."""
    NATIVE = "Native"
    """Kubernetes' own Workload and PodGroup (`scheduling.k8s.io`, Kubernetes 1.36 and later, feature gates
    GenericWorkload and GangScheduling).
    """
    COSCHEDULING = "Coscheduling"
    """The PodGroup of the scheduler-plugins project (`scheduling.x-k8s.io`)."""
    VOLCANO = "Volcano"
    """The PodGroup of Volcano (`scheduling.volcano.sh`)."""
    NONE = "None"
    """No gang scheduling. If not all pods of a TrainingJob have started in time, Convoy deletes them and
    tries again later.
    """


class Pack(StrEnum):
    """Closeness of the pods of a gang."""

    REQUIRED = "Required"
    """All pods run in one domain of the first topology key. Otherwise the job waits."""
    PREFERRED = "Preferred"
    """The pods run in as few domains as possible."""
    NONE = "None"
    """The scheduler alone chooses the nodes. Ranks of a TrainingJob are still numbered along the topology."""


_PACK_RULE = Rule(
    "!has(self.pack) || self.pack != 'Required' || (has(self.topologyKeys) && size(self.topologyKeys) > 0)",
    "pack: Required needs topologyKeys: name the node label whose domain must hold all pods",
    ".pack",
)


class Packing(Model):
    """The pods of a gang: whether they start together, and how near each other they run."""

    model_config = validated(_PACK_RULE)

    gang: GangBackend = GangBackend.AUTO
    """Scheduler feature that starts all pods or none."""
    topology_keys: Annotated[
        list[LabelKey], Field(max_length=MAX_KEYS, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default=[])
    """Keys of node labels that name a node's place, the nearest first: rack, then zone."""
    pack: Pack = Pack.PREFERRED
    """Closeness of the pods. It has no effect without `topologyKeys`."""


class Advise(StrEnum):
    """Method by which Convoy compares places for a job's pods."""

    NONE = "None"
    """No comparison."""
    SIMULATE = "Simulate"
    """Convoy simulates the step of the job on each place, and prefers the place with the shortest step. The
    node labels `convoy.dev/host-gbit` and `convoy.dev/uplink-gbit` name the rates of the links.
    """


Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]


class Step(Model):
    """A data-parallel training step of one rank."""

    forward_milliseconds: Milliseconds = 0
    """Computation before the first gradient."""
    backward_milliseconds: Milliseconds = 0
    """Computation that yields the gradients, at a constant rate."""
    optimizer_milliseconds: Milliseconds = 0
    """Computation after all gradients are reduced."""
    gradient_bytes: Annotated[int, Field(ge=1, le=1 << 42)]
    """Bytes of all gradients."""
    bucket_bytes: Annotated[int, Field(ge=LEAST_BUCKET, le=1 << 42)] = 26_214_400
    """Bytes of a bucket of gradients, such as `bucket_cap_mb` of DistributedDataParallel."""


_ADVISE_RULE = Rule(
    "!has(self.advise) || self.advise != 'Simulate' || (has(self.step) && has(self.topologyKeys) "
    "&& size(self.topologyKeys) > 0)",
    "advise: Simulate needs step, the job's training step, and topologyKeys",
    ".advise",
)


class Placement(Packing):
    """Where the pods of a job run."""

    model_config = validated(_PACK_RULE, _ADVISE_RULE)

    advise: Advise = Advise.NONE
    """Method by which Convoy compares places for the pods. It never delays the job: pods that are created
    before the comparison has ended get the place that packing chooses.
    """
    step: Step | None = None
    """The job's training step, for `advise`."""

    shrink_first: bool = True
    """True: to make room for a job of higher priority, this job gives up pods above `minReplicas` before any
    job is evicted as a whole. False: it keeps its pods until a scheduler or queue evicts them.
    """


class DomainCount(StatusModel):
    """A domain of the topology, and the number of ranks there."""

    name: str
    ranks: int


class KeyPlacement(StatusModel):
    """The domains of one topology key in which the job runs."""

    key: str
    domains: int = 0
    """Number of domains. Nodes without the label count as one more domain with the name `-`."""
    ranks: Annotated[list[DomainCount], Field(max_length=MAX_DOMAINS)] = Field(default_factory=list)
    """Ranks in each domain, in the order of the ranks; at most 32 domains."""


class QueueState(StrEnum):
    """State of a job in its queue."""

    WAITING = "Waiting"
    """The queue has not admitted the job yet."""
    ADMITTED = "Admitted"
    """The queue has admitted the job."""
    EVICTED = "Evicted"
    """The queue takes the job's quota back. The job saves its state and ends its pods."""
    INACTIVE = "Inactive"
    """The queue's administrator has deactivated the job."""


class QueueStatus(StatusModel):
    """The job in its Kueue queue."""

    name: str
    """Name of the LocalQueue."""
    workload: str = ""
    """Name of the Kueue Workload."""
    state: QueueState = QueueState.WAITING
    cluster_queue: str = ""
    """ClusterQueue that admitted the job."""
    evictions: int = 0
    """Number of times that the queue has evicted the job."""


class ClaimedPod(StatusModel):
    """A pod of another job of lower priority that leaves, to make room for this job."""

    job: str
    """Name of the other job, in the namespace `namespace`."""
    namespace: str
    role: str
    replica: int


class RankedPlace(StatusModel):
    """A place for the job's pods, and the predicted step there."""

    name: str
    """`packed`: the place that packing chooses; or the domain that is filled first; or `one pod per node`."""
    step_ms: float
    """Predicted milliseconds of a step."""
    bottleneck: str = ""
    """The busiest link."""


class PlacementAdvice(StatusModel):
    """The comparison of places, and the prediction for the job's own place beside what was measured."""

    skipped: str = ""
    """Reason why Convoy cannot compare places."""
    places: Annotated[list[RankedPlace], Field(max_length=MAX_CANDIDATES)] = Field(default_factory=list)
    """Places at the last start, the fastest first."""
    chosen: str = ""
    """Name of the place for which the pods were created."""
    predicted_ms: float | None = None
    """Predicted milliseconds of a step on the nodes where the ranks run."""
    measured_ms: float | None = None
    """Measured milliseconds of a step: the median of the ranks' recent steps."""
    error_percent: float | None = None
    """Difference between prediction and measurement, in percent of the measurement."""


class PlacementStatus(StatusModel):
    """Where the job's pods run, and who placed them."""

    gang: GangBackend | None = None
    """Backend in use. Absent before the first pods."""
    group: str = ""
    """Name of the PodGroup. Absent with the backend None."""
    queue: QueueStatus | None = None
    """Absent without a queue."""
    claims: Annotated[list[ClaimedPod], Field(max_length=MAX_CLAIMS)] = Field(default_factory=list)
    """Pods of other jobs that leave, to make room for this job. Absent once the job has started."""
    claimed_at: datetime | None = None
    """Time at which Convoy asked for these pods."""
    priority: int | None = None
    """Priority of the job's pods when Convoy asked for the pods of other jobs."""
    summary: str = ""
    """Domains of the first topology key and hops of the ring, such as `2 racks, 3 hops`. Absent without
    topology keys.
    """
    keys: Annotated[list[KeyPlacement], Field(max_length=MAX_KEYS)] = Field(default_factory=list)
    hops: int | None = None
    """Sum of the hops between ring neighbours: 0 within a node, 1 within a domain of the first key, one more
    for each further key that differs. Absent without topology keys.
    """
    advice: PlacementAdvice | None = None
    """Absent without `spec.placement.advise`."""
