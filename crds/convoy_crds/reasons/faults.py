"""Faults of ranks, containers, pods and nodes."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class FaultReasons:
    """Faults of ranks, containers, pods and nodes."""

    COMMAND_NOT_FOUND = Reason(
        "CommandNotFound",
        "rank {rank} on node {node}: {why}; check spec.roles[{role}].template.spec.containers[0].command",
        warning=True,
    )
    NO_PYTHON = Reason(
        "NoPythonInImage",
        "pod {pod}: Convoy's launcher needs python3, 3.9 or later, on the image's PATH; install it, or set "
        "PATH in the container's env: {why}",
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
        "rank {rank} on node {node} ran out of memory; raise resources.limits.memory or lower the batch. "
        "{stderr}",
        warning=True,
    )
    RANK_HUNG = Reason(
        "RankHung",
        "rank {rank} on node {node} made no step for {seconds} s (spec.recovery.hangSeconds). {stderr}",
        warning=True,
    )
    RANK_NOT_ENDING = Reason(
        "RankNotEnding",
        "rank {rank} on node {node} made its last step{step} and has not ended since; {place} (no end for "
        "{seconds} s, spec.recovery.hangSeconds)",
        warning=True,
    )
    ENDED_EARLY = Reason(
        "EndedEarly",
        "rank {rank} on node {node} ended with exit code 0 {when} while others went on{more} (uneven inputs?)"
        ". Give every rank the same number of steps: drop the last uneven batches (drop_last=True), or use "
        "the join() context manager of DistributedDataParallel; a rank that ends first waits for the others "
        "in torch.distributed.barrier(). {then}",
        warning=True,
    )
    BAD_PARAMS_EXIT = Reason(
        "ParamsRefused",
        "rank {rank} on node {node} refused its parameters (exit 10). {stderr}",
        warning=True,
    )
    DATA_ERROR = Reason(
        "DataError",
        "rank {rank} on node {node} could not use its data (exit code 20). {stderr}",
        warning=True,
    )
    PREEMPTED = Reason("Preempted", "rank {rank} on node {node} saved its state and left (exit code 75)")
    PEER_LOST = Reason(
        "PeerLost", "rank {rank} on node {node} lost a peer (exit code 76). {stderr}", warning=True
    )
    CONTAINER_OOM = Reason(
        "ContainerOutOfMemory",
        "pod {pod} on node {node} was ended because it ran out of memory; raise resources.limits.memory or "
        "lower the batch",
        warning=True,
    )
    POD_LOST = Reason("PodLost", "pod {pod} on node {node} is gone: {why}", warning=True)
    INIT_FAILED = Reason(
        "InitContainerFailed",
        "pod {pod} on node {node}: init container {container} {how}. {words}; while its pod is there, see "
        "kubectl logs {pod} -c {container}",
        warning=True,
    )
    CONTAINER_FAILED = Reason(
        "ContainerFailed",
        "pod {pod} on node {node}: container {container} {how}. {words}; while its pod is there, see "
        "kubectl logs {pod} -c {container}",
        warning=True,
    )
    CONTAINER_STOPPED = Reason(
        "ContainerStopped",
        "pod {pod} on node {node}: container {container} {how}. Most likely its kubelet stopped it, because "
        "{what} of the template failed{why}; see kubectl describe pod {pod}",
        warning=True,
    )
    POD_DEADLINE = Reason(
        "PodDeadlineExceeded",
        "pod {pod} on node {node} was ended by spec.activeDeadlineSeconds of its template, which begins anew "
        "with each pod; set spec.activeDeadlineSeconds of the job instead",
        warning=True,
    )
    POD_UNFIT = Reason(
        "PodUnfit",
        "node {node} does not admit pod {pod}, nor would another like it: {why}; correct the role's template",
        warning=True,
    )
    STORAGE_LIMIT = Reason(
        "StorageLimitExceeded",
        "pod {pod} on node {node} was ended by its kubelet: {why}; raise that limit in the template, or "
        "write less",
        warning=True,
    )
    POD_NOT_ADMITTED = Reason("PodNotAdmitted", "node {node} did not admit pod {pod}: {why}", warning=True)
    POD_DELETED = Reason("PodDeleted", "pod {pod} on node {node} was deleted", warning=True)
    POD_PREEMPTED = Reason(
        "PodPreempted", "pod {pod} on node {node} makes room for one of higher priority", warning=True
    )
    POD_EVICTED = Reason("PodEvicted", "pod {pod} on node {node} is evicted: {why}", warning=True)
    NODE_DRAINED = Reason("NodeDrained", "node {node} is drained: pod {pod} saves its state and moves")
    STRAGGLER_SWAPPED = Reason(
        "StragglerSwapped",
        "node {node} is slow, see its NodeHealth: pod {pod} saves its state and moves",
        warning=True,
    )
    NODE_LOST = Reason(
        "NodeLost",
        "node {node} is lost with pod {pod}: {why}; its place is taken elsewhere",
        warning=True,
    )
