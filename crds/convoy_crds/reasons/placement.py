"""Reasons about the placement of a job's pods: gangs, topology and queues."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class PlacementReasons:
    """Reasons about the placement of a job's pods: gangs, topology and queues."""

    GANG_MISSING = Reason(
        "GangBackendMissing",
        "spec.placement.gang: {backend} needs the API {api}, which the API server does not serve: {advice}. "
        "Convoy creates the pods as soon as the API is there",
        warning=True,
    )
    GANG_SPLIT = Reason(
        "GangSplit",
        "spec.placement.gang: {backend}: all Member roles of a gang need the same {field}, but they have "
        "{values}",
        warning=True,
    )
    GANG_REFUSED = Reason(
        "GangRefused",
        "the API server refused PodGroup {group}: {why}; correct the cause, or set spec.placement.gang: None",
        warning=True,
    )
    GANG_PLACED = Reason("GangPlaced", "PodGroup {group} ({backend}): all {count} pods have nodes")
    GANG_IGNORED = Reason(
        "GangIgnored",
        "PodGroup {group} has no condition although its pods have nodes: kube-scheduler ignores gangs. "
        "Enable its feature gates (docs/placement.md), or set spec.placement.gang: None",
        warning=True,
    )
    SCHEDULER_MISSING = Reason(
        "SchedulerMissing",
        "no scheduler named {scheduler!r} has looked at pod {pod} for {seconds} s: install it, or choose "
        "another spec.placement.gang ({backend} is in use)",
        warning=True,
    )
    GANG_WAITING = Reason(
        "GangWaiting",
        "PodGroup {group} waits until the scheduler has room for {count} pods at once: {why}",
    )
    READING_ROOM = Reason(
        "ReadingRoom", "Convoy reads the pods of the cluster, to find room near each other for {count} pods"
    )
    UNKNOWN_TOPOLOGY_KEY = Reason(
        "UnknownTopologyKey",
        "spec.placement.topologyKeys: no node has the label {keys}; label the nodes, or correct the key",
        warning=True,
    )
    NO_ROOM_TOGETHER = Reason(
        "NoRoomTogether",
        "spec.placement.pack: Required: no {key} has room for all {wanted} pods now. {largest} has room for "
        "{holds}. Convoy creates the pods when there is room",
    )
    NEVER_TOGETHER = Reason(
        "NeverTogether",
        "spec.placement.pack: Required: no {key} can hold {wanted} pods, even without other pods. {largest} "
        "can hold {holds}. Set pack: Preferred, name a farther key first, or use fewer or smaller pods",
        warning=True,
    )
    MAKING_ROOM = Reason(
        "MakingRoom",
        "{count} pods of jobs with lower priority save their state and leave, to make room: {jobs}",
    )
    QUEUE_MISSING = Reason(
        "QueueMissing",
        "the label kueue.x-k8s.io/queue-name names queue {queue!r}, but the API server does not serve {api}: "
        "install Kueue 0.17 or later, or remove the label",
        warning=True,
    )
    QUEUE_WAITING = Reason("QueueWaiting", "LocalQueue {queue} has not admitted the job: {why}")
    QUEUE_ADMITTED = Reason("QueueAdmitted", "ClusterQueue {cluster_queue} admitted all {count} pods")
    QUEUE_PARTIAL = Reason(
        "QueuePartial",
        "ClusterQueue {cluster_queue} admitted {count} of {wanted} pods ({roles}); the job runs with these. "
        "To ask for all pods again, set spec.suspend to true and back to false",
    )
    QUEUE_EVICTED = Reason(
        "QueueEvicted", "LocalQueue {queue} takes the job's quota back ({cause}): {why}; {state}"
    )
    QUEUE_CHANGED = Reason(
        "QueueChanged",
        "the job's pods belong to {before}, but the Workload of its present queue and shape is {queue}; "
        "{state}",
    )
    QUEUE_LOST = Reason(
        "QueueLost", "Workload {workload} of the job's pods has no quota: {why}; {state}", warning=True
    )
    QUEUE_INACTIVE = Reason(
        "QueueInactive",
        "Workload {workload} is deactivated: {why}. Set its spec.active to true to queue the job again",
        warning=True,
    )
    QUEUE_REFUSED = Reason(
        "QueueRefused",
        "the API server refused Workload {workload}: {why}; correct the job, or ask Kueue's administrator",
        warning=True,
    )
    QUEUE_PRIORITY_MISSING = Reason(
        "QueuePriorityMissing",
        "the label kueue.x-k8s.io/priority-class names WorkloadPriorityClass {name!r}, which does not exist: "
        "create it, or correct the label",
        warning=True,
    )
    QUEUE_CONFLICT = Reason(
        "QueueConflict",
        "role {role} cannot use the quota of ClusterQueue {cluster_queue}: {why}; correct the template, then "
        "set spec.suspend to true and back to false",
        warning=True,
    )
    QUEUE_PLACES = Reason(
        "QueuePlaces",
        "Workload {workload} has no place for {pod} yet{more}: Kueue chooses another node, or evicts the job",
    )
    QUEUE_CAPTURED = Reason(
        "QueueCaptured",
        "Kueue queues pod {pod} on its own, so the job may never be whole: add "
        "TrainingJob.v1alpha1.convoy.dev to integrations.externalFrameworks in Kueue's configuration, or "
        "exclude namespace {namespace} with managedJobsNamespaceSelector",
        warning=True,
    )
    YIELDED = Reason(
        "Yielded",
        "{pods} save their state and leave, to make room for {claimant} (priority {priority}, this job "
        "{own}); the job goes on with fewer pods, which come back when there is room again "
        "(spec.placement.shrinkFirst)",
    )
    ADVICE_SKIPPED = Reason("AdviceSkipped", "spec.placement.advise: places are not compared: {why}")
    PLACE_ADVISED = Reason(
        "PlaceAdvised",
        "the pods run at the place `packed`, with a predicted step of {own} ms. The place `{place}` would "
        "take {other} ms: suspend and resume the job to move it there",
    )
