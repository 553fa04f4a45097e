"""Reasons for faults of ranks, containers, pods and nodes."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class FaultReasons:
    """Reasons for faults of ranks, containers, pods and nodes."""

    COMMAND_NOT_FOUND = Reason(
        "CommandNotFound",
        "rank {rank} on node {node}: {why}; check spec.roles[{role}].template.spec.containers[0].command",
        warning=True,
    )
    NO_PYTHON = Reason(
        "NoPythonInImage",
        "pod {pod}: Convoy's launcher needs python3, 3.9 or later, on the image's PATH: {why}; install "
        "it, or set PATH in the container's env",
        warning=True,
    )
    RANK_FAILED = Reason(
        "RankFailed",
        "rank {rank} on node {node} exited with code {code}. {stderr}",
        warning=True,
    )
    RANK_KILLED = Reason(
        "RankKilled", "rank {rank} on node {node} was killed by signal {signal}{who}. {stderr}", warning=True
    )
    RANK_CRASHED = Reason(
        "RankCrashed", "rank {rank} on node {node} crashed with {signal_name}. {stderr}", warning=True
    )
    RANK_OOM = Reason(
        "OutOfMemory",
        "rank {rank} on node {node} ran out of memory; raise resources.limits.memory or lower the batch "
        "size. {stderr}",
        warning=True,
    )
    RANK_HUNG = Reason(
        "RankHung",
        "rank {rank} on node {node} made no step for {seconds} s (spec.recovery.hangSeconds). {stderr}",
        warning=True,
    )
    RANK_NOT_ENDING = Reason(
        "RankNotEnding",
        "rank {rank} on node {node} made its last step{step} but did not exit within {seconds} s "
        "(spec.recovery.hangSeconds); {place}",
        warning=True,
    )
    ENDED_EARLY = Reason(
        "EndedEarly",
        "rank {rank} on node {node} exited with code 0 {when}{more} while other ranks went on (uneven "
        "inputs?). Give every rank the same number of steps: drop the last uneven batches "
        "(drop_last=True), or use the join() context manager of DistributedDataParallel. Or let a rank "
        "that finishes first wait for the others in torch.distributed.barrier(). {then}",
        warning=True,
    )
    BAD_PARAMS_EXIT = Reason(
        "ParamsRefused",
        "rank {rank} on node {node} rejected its parameters (exit code 10). {stderr}",
        warning=True,
    )
    DATA_ERROR = Reason(
        "DataError",
        "rank {rank} on node {node} could not use its data (exit code 20). {stderr}",
        warning=True,
    )
    PREEMPTED = Reason("Preempted", "rank {rank} on node {node} saved its state and exited (exit code 75)")
    PEER_LOST = Reason(
        "PeerLost",
        "rank {rank} on node {node} lost the connection to another rank (exit code 76). {stderr}",
        warning=True,
    )
    CONTAINER_OOM = Reason(
        "ContainerOutOfMemory",
        "pod {pod} on node {node} ran out of memory (OOMKilled; files in /dev/shm count too); raise "
        "resources.limits.memory or lower the batch size",
        warning=True,
    )
    POD_LOST = Reason("PodLost", "pod {pod} on node {node} was lost: {why}", warning=True)
    INIT_FAILED = Reason(
        "InitContainerFailed",
        "pod {pod} on node {node}: init container {container} {how}. {words}; while the pod exists, see "
        "kubectl logs {pod} -c {container}",
        warning=True,
    )
    CONTAINER_FAILED = Reason(
        "ContainerFailed",
        "pod {pod} on node {node}: container {container} {how}. {words}; while the pod exists, see "
        "kubectl logs {pod} -c {container}",
        warning=True,
    )
    CONTAINER_STOPPED = Reason(
        "ContainerStopped",
        "pod {pod} on node {node}: container {container} {how}. Most likely the kubelet stopped it, "
        "because {what} of the template failed{why}; see kubectl describe pod {pod}",
        warning=True,
    )
    POD_DEADLINE = Reason(
        "PodDeadlineExceeded",
        "pod {pod} on node {node} exceeded spec.activeDeadlineSeconds of its template. That limit starts "
        "again for each pod, so set spec.activeDeadlineSeconds of the job instead",
        warning=True,
    )
    POD_UNFIT = Reason(
        "PodUnfit",
        "node {node} does not admit pod {pod}, and similar nodes would not either: {why}; correct the "
        "role's template",
        warning=True,
    )
    STORAGE_LIMIT = Reason(
        "StorageLimitExceeded",
        "the kubelet stopped pod {pod} on node {node}: {why}; raise that limit in the role's template, or "
        "let the program write less",
        warning=True,
    )
    POD_NOT_ADMITTED = Reason("PodNotAdmitted", "node {node} did not admit pod {pod}: {why}", warning=True)
    POD_DELETED = Reason("PodDeleted", "pod {pod} on node {node} was deleted", warning=True)
    POD_PREEMPTED = Reason(
        "PodPreempted",
        "pod {pod} on node {node} was preempted by a pod of higher priority",
        warning=True,
    )
    POD_EVICTED = Reason("PodEvicted", "pod {pod} on node {node} was evicted: {why}", warning=True)
    NODE_DRAINED = Reason(
        "NodeDrained",
        "node {node} is being drained: pod {pod} saves its state and restarts on another node",
    )
    STRAGGLER_SWAPPED = Reason(
        "StragglerSwapped",
        "node {node} is slow (see its NodeHealth): pod {pod} saves its state and is swapped to another node",
        warning=True,
    )
    SUSPECT_SWAPPED = Reason(
        "SuspectSwapped",
        "node {node} may be slow, so it is tested (see its NodeHealth): pod {pod} saves its state and is "
        "swapped to another node",
        warning=True,
    )
    NODE_LOST = Reason(
        "NodeLost",
        "node {node} and its pod {pod} are lost: {why}; Convoy restarts the pod on another node",
        warning=True,
    )
