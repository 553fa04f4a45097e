"""Every label, annotation, finalizer, condition type, reason and message of Convoy, each named once.

A reason is what a condition, an Event and `status.reason` carry; its message template says what is wrong,
where (field path, node, rank) and what to do about it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

OPERATOR = "convoy-operator"
FIELD_MANAGER = "convoy-operator"
MANAGED_BY = "convoy.dev/operator"

LABEL_JOB = "convoy.dev/job"
LABEL_ROLE = "convoy.dev/role"
LABEL_INDEX = "convoy.dev/index"
LABEL_AGENT_READY = "convoy.dev/agent-ready"

LABEL_NODE_HEALTH = "convoy.dev/node-health"
"""State of a node's hardware, on the node."""
TAINT_UNQUALIFIED = "convoy.dev/unqualified"
TAINT_SUSPECT = "convoy.dev/suspect"
TAINT_QUARANTINED = "convoy.dev/quarantined"
TAINTS = (TAINT_UNQUALIFIED, TAINT_SUSPECT, TAINT_QUARANTINED)
"""All that Convoy ever puts on nodes. It takes none but these away, and cordons nothing."""
NODE_CONDITION_QUALIFIED = "convoy.dev/Qualified"
"""Condition on the Node, for other controllers to read."""

ANNOTATION_INTENT = "convoy.dev/intent-hash"
ANNOTATION_BORN = "convoy.dev/born-incarnation"
"""The incarnation that a pod was created for; later ones may restart its ranks in place."""
ANNOTATION_CONTAINER = "convoy.dev/container"
"""Name of a worker pod's container that runs the ranks: admission may put others before it."""
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The container that `kubectl logs` and `kubectl exec` choose."""

ENV_PARAMS = "CONVOY_PARAMS"
ENV_CHECKPOINT_DIR = "CONVOY_CHECKPOINT_DIR"
ENV_CHECKPOINT_SECONDS = "CONVOY_CHECKPOINT_SECONDS"
ENV_CHECKPOINT_TIERS = "CONVOY_CHECKPOINT_TIERS"
ENV_GRACE_SECONDS = "CONVOY_GRACE_SECONDS"
ENV_HANG_SECONDS = "CONVOY_HANG_SECONDS"
ENV_HOME = "CONVOY_HOME"
"""A folder that any user of the pod may write to; the launcher makes HOME there where the image has none."""
ENV_SOCKET = "CONVOY_SOCKET"
ENV_WARM = "CONVOY_WARM"
"""`false` where `recovery.warm` is; absent otherwise, so that no running pod is replaced for it."""

CSI_DRIVER = "agent.convoy.dev"
HUB_AUDIENCE = "convoy-hub"
HUB_SERVER_NAME = "hub.convoy.dev"
LEASE_NAME = "convoy-operator"
CA_SECRET = "convoy-ca"  # noqa: S105 - the name of a Secret, not its content
CA_CONFIG_MAP = "convoy-ca"

MOUNT_PATH = "/var/run/convoy"
"""Where the agent's CSI volume appears in a worker pod."""
HOME_PATH = "/var/run/convoy-home"
"""Where a worker pod has an empty volume for a home and temporary files."""
STORES_PATH = "/var/lib/convoy/stores"
"""Where the claims of agent.storeVolumes appear in an agent's pod, each in a folder of its name."""


_AGENTS = ".agents.convoy.dev"
_LONGEST_SERVER_NAME = 253
"""Characters of a DNS name. OpenSSL and BoringSSL refuse to ask for a longer one."""


def agent_server_name(node: str) -> str:
    """The name by which the agent of a node is asked for in a TLS handshake."""
    name = f"{node}{_AGENTS}"
    if len(name) <= _LONGEST_SERVER_NAME:
        return name
    return f"{hashlib.sha256(node.encode()).hexdigest()[:40]}.digest{_AGENTS}.internal"


def agent_names(node: str) -> list[str]:
    """The names in the certificate of a node's agent. By the first, agents know who calls."""
    return list(dict.fromkeys((f"{node}{_AGENTS}", agent_server_name(node))))


class ConditionType:
    """Condition types of a TrainingJob."""

    VALID = "Valid"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    CHECKPOINTING = "Checkpointing"
    """Absent for a job without spec.checkpoint.tiers."""
    STRAGGLER_DETECTED = "StragglerDetected"
    """Absent until the ranks of an incarnation have told of their steps."""
    READY = "Ready"
    """Of an Engine: jobs may name it. Of a CheckpointStore: checkpoints can be committed there."""
    QUALIFIED = "Qualified"
    """Of a NodeHealth: a sweep that still counts has passed the hardware, and nothing speaks against it."""
    ACTING = "Acting"
    """Of a NodeHealth: what is wanted may be done; False says which budget is in the way."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A typed reason: its CamelCase name, whether it is trouble for the user, and its message template."""

    name: str
    message: str
    warning: bool = False

    def format(self, **facts: Any) -> str:
        """The message with its facts filled in; KeyError when one is missing."""
        return self.message.format(**facts)


class Reasons:
    """The catalogue. One reason, one meaning."""

    ACCEPTED = Reason("Accepted", "the spec is valid")
    UNKNOWN_ENGINE = Reason(
        "UnknownEngine",
        "spec.engine.name: there is no Engine {name!r}; create it or name one of: {known}",
        warning=True,
    )
    ENGINE_NOT_READY = Reason(
        "EngineNotReady", "spec.engine.name: Engine {name!r} cannot be used: {why}", warning=True
    )
    WRONG_ROLE_KIND = Reason(
        "WrongRoleKind",
        "spec.engine.name: Engine {name!r} is for {role_kind}, not for a TrainingJob; name a training engine",
        warning=True,
    )
    UNKNOWN_STORE = Reason(
        "UnknownStore",
        "spec.checkpoint.tiers.remote.store: there is no CheckpointStore {name!r}; create it or name one of: "
        "{known}",
        warning=True,
    )
    STORE_NOT_ALLOWED = Reason(
        "StoreNotAllowed",
        "spec.checkpoint.tiers.remote.store: CheckpointStore {name!r} is not for jobs of namespace "
        "{namespace!r}; add it to the store's spec.allowedNamespaces, or name another store",
        warning=True,
    )
    NOTHING_TO_RESUME = Reason(
        "NothingToResume",
        "spec.checkpoint.resumeFrom.job {name!r}: {why}",
        warning=True,
    )
    INVALID_PARAMS = Reason(
        "InvalidParams", "{path}: {why}; see the parameters of Engine {name!r}", warning=True
    )
    INVALID_SPEC = Reason("InvalidSpec", "{path}: {why}", warning=True)
    SPLIT_GROUP = Reason("SplitGroup", "{path}: {why}", warning=True)
    INVALID_SCHEMA = Reason("InvalidSchema", "spec.paramsSchema: {why}", warning=True)

    PROBED = Reason("Probed", "checkpoints can be committed there: {what}")
    NOT_PROBED = Reason("NotProbed", "nobody has tried it out yet: {why}")
    SECRET_NOT_FOUND = Reason(
        "SecretNotFound",
        "spec.s3.credentialsSecret: Secret {name!r} in namespace {namespace!r} cannot be read: {why}",
        warning=True,
    )
    SECRET_INCOMPLETE = Reason(
        "SecretIncomplete",
        "spec.s3.credentialsSecret: Secret {name!r} in namespace {namespace!r} has no {missing}; add it",
        warning=True,
    )
    STORE_UNREACHABLE = Reason(
        "StoreUnreachable",
        "the agent of node {node} could not use it: {why}; it is tried again",
        warning=True,
    )
    CLAIM_NOT_MOUNTED = Reason(
        "ClaimNotMounted",
        "spec.volume.claimName: PersistentVolumeClaim {name!r} is not mounted into the agent of node {node}; "
        "add it to agent.storeVolumes of the chart, then see that the agents come up: "
        "kubectl -n {namespace} rollout status daemonset/convoy-agent",
        warning=True,
    )
    NO_CONDITIONAL_WRITES = Reason(
        "NoConditionalWrites",
        "it ignores conditional writes (If-None-Match), so two incarnations could commit over one another: "
        "jobs commit nothing there. Amazon S3, Cloudflare R2 and recent releases of MinIO, Ceph and "
        "versitygw have them: upgrade, or use another store",
        warning=True,
    )
    NO_HARD_LINKS = Reason(
        "NoHardLinks",
        "spec.volume.claimName: the file system of PersistentVolumeClaim {name!r} makes no hard links, or "
        "several of one name, so two incarnations could commit over one another: jobs commit nothing there. "
        "NFS, CephFS and Lustre have them, buckets mounted as folders and many SMB shares have not: use "
        "another volume",
        warning=True,
    )

    WAITING_FOR_PODS = Reason("WaitingForPods", "{ready} of {desired} pods are placed{more}")
    BACK_OFF = Reason(
        "BackOff",
        "incarnation {incarnation} forms at {at} at the earliest, after {count} restarts; the last: {why}",
        warning=True,
    )
    WAITING_FOR_AGENT = Reason(
        "WaitingForAgent",
        "no node carries the label convoy.dev/agent-ready=true: check the convoy-agent DaemonSet",
        warning=True,
    )
    UNSCHEDULABLE = Reason(
        "Unschedulable",
        "pod {pod} cannot be placed: {why}; {advice}",
        warning=True,
    )
    SCHEDULE_DEADLINE = Reason(
        "ScheduleDeadline",
        "not all pods were up within {seconds} s (spec.recovery.scheduleSeconds): {why}; gave them back, "
        "the next try is at {until}",
        warning=True,
    )
    SCHEDULE_RETRY = Reason(
        "ScheduleRetry",
        "{now}; the pods of the try before were given back, since {why}",
        warning=True,
    )
    ALL_SCHEDULED = Reason("AllScheduled", "all {desired} pods are placed")
    IMAGE_PULL = Reason(
        "ImagePullFailed",
        "pod {pod} on node {node}: image {image!r} cannot be pulled: {why}; check its name and "
        "imagePullSecrets, it is tried again",
        warning=True,
    )
    CONTAINER_CONFIG = Reason(
        "ContainerConfigError",
        "pod {pod} on node {node}: container {container} cannot be created: {why}",
        warning=True,
    )
    CONTAINER_FAILING = Reason(
        "ContainerFailing",
        "pod {pod} on node {node}: container {container} {how} and is started again and again. {words}; see "
        "kubectl logs {pod} -c {container} --previous",
        warning=True,
    )
    POD_NOT_STARTING = Reason(
        "PodNotStarting",
        "pod {pod} on node {node} does not start: {event}: {why} (kubectl describe pod {pod})",
        warning=True,
    )
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
    POD_REJECTED = Reason(
        "PodRejected",
        "the API server refused pod {pod}: {why}; {advice}",
        warning=True,
    )
    POD_CONFLICT = Reason(
        "PodNameTaken",
        "a pod named {pod} exists and is not this job's; delete it or rename the job",
        warning=True,
    )
    STARTING_PODS = Reason(
        "StartingPods",
        "{ready} of {desired} pods are up; pod {pod} on node {node}: {state} (kubectl describe pod {pod})",
    )

    FORMING = Reason("FormingProcessGroup", "incarnation {incarnation}: starting {world} ranks")
    TRAINING = Reason("Training", "incarnation {incarnation}: {world} ranks run")
    SHRUNK = Reason(
        "Shrunk",
        "incarnation {incarnation}: {world} ranks run without {absent}; they are taken in at the next "
        "checkpoint after they are up",
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
    SAVING = Reason("Saving", "the state is saved every {interval} to: {tiers}")
    NOTHING_SAVED = Reason(
        "NothingSaved",
        "no checkpoint is there yet, the interval is {interval}; only what a program saves by "
        "job.checkpoint() is kept (import convoy)",
    )
    SINGLE_DOMAIN = Reason(
        "SingleDomain",
        "the state is saved every {interval} to: {tiers}; but copies are on nodes that share their {key} "
        "({where}): spread the job's pods, or name another label in spec.checkpoint.tiers.peer.topologyKey",
    )
    NO_PEER = Reason(
        "NoPeer",
        "all pods are on node {node}: no other node of the job can keep copies, and the state goes with the "
        "node; spread the pods",
        warning=True,
    )
    NO_CHECKPOINT_MEMORY = Reason(
        "NoCheckpointMemory",
        "nothing is saved: on node {node}, {why}. Raise agent.checkpointMemoryMiB of the chart, or "
        "spec.checkpoint.tiers.local.memory, or use more nodes",
        warning=True,
    )
    CHECKPOINTS_LOST = Reason(
        "CheckpointsLost",
        "incarnation {incarnation} began at step 0: {why}. More nodes were lost at once than there are "
        "copies (spec.checkpoint.tiers.peer.copies)",
        warning=True,
    )
    INEXACT_JOURNAL = Reason(
        "InexactJournal",
        "full checkpoints alone are saved: on node {node}, {why} is not what its gradients make; something "
        "beside the optimizer changes it, and what was restored from a journal may differ from what was made",
        warning=True,
    )
    NOT_STORED = Reason(
        "NotStored",
        "checkpoints are in memory alone: from node {node}, CheckpointStore {name!r} does not get {why}",
        warning=True,
    )
    NOT_COPIED = Reason(
        "NotCopied",
        "the newest checkpoint has no copies, and no further one is saved until it has: node {node} sends "
        "them and hears from {why}. Where bytes are missing, raise agent.checkpointMemoryMiB of the chart or "
        "spec.checkpoint.tiers.local.memory, or keep fewer copies (spec.checkpoint.tiers.peer.copies); else "
        "see why the convoy-agent of that node does not answer, or why that of the first one cannot send",
        warning=True,
    )
    OVERDUE = Reason(
        "Overdue",
        "saving has stopped: the interval is {interval}, steps go on, and the newest checkpoint is of {at} "
        "(step {step}); see what the ranks say, and the convoy-agents of their nodes",
        warning=True,
    )
    STORE_AWAY = Reason(
        "StoreUnavailable",
        "the ranks on node {node} wait to begin: memory does not have all that is known of the job, and its "
        "CheckpointStore does not answer: {why}. They begin once it does, and no restart for it counts; see "
        "kubectl describe checkpointstores",
        warning=True,
    )
    STORE_NOT_READY = Reason(
        "StoreNotReady",
        "CheckpointStore {name!r} is not ready, checkpoints may be in memory alone: {why}",
        warning=True,
    )
    STRAGGLER = Reason(
        "Straggler",
        "{who} makes the others wait ({cause}): {slowdown} longer than its peers since step {since}, "
        "{lasting}; see: convoy why {job}",
        warning=True,
    )
    SLOW_TOGETHER = Reason(
        "SlowTogether",
        "the job is slower than it could be, and no node is to blame: {what}",
    )
    NO_STRAGGLER = Reason("NoStraggler", "no rank keeps the others waiting")
    DETECTOR_DEGRADED = Reason(
        "DetectorDegraded",
        "a rank that was made up to be half as slow again was not found: the ranks' times say too little, or "
        "scatter too much; that nobody is named says nothing",
        warning=True,
    )
    TOO_FEW_PEERS = Reason(
        "TooFewPeers",
        "nobody is judged: it takes 4 ranks that do the same work to tell who of them is slow",
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
    FENCING = Reason(
        "Fencing",
        "pod {pod} on lost node {node} may still run: it is replaced once its agent must have stopped it, "
        "{seconds} s after its last sign of life (spec.recovery.fencing: Strict)",
        warning=True,
    )
    FENCING_COMPANY = Reason(
        "FencingCompany",
        "pod {pod} on lost node {node} may still run: most of the job's nodes are silent, or hear of it, and "
        "keep one another going (spec.recovery.fencing: Strict); delete the Node object of each that is "
        "really gone",
        warning=True,
    )
    FENCING_ANSWERED = Reason(
        "FencingAnswered",
        "pod {pod} on node {node} answers, but nothing is heard of its agent: under spec.recovery.fencing: "
        "Strict it is replaced when the agent is back, or when its Node object is deleted",
        warning=True,
    )
    REGROW = Reason("Regrow", "{count} pods are back: the process group forms anew with {world} ranks")
    STATUS_BEHIND = Reason(
        "StatusBehind",
        "agents know of incarnation {seen}, the stored status only of {incarnation}: it is of an earlier "
        "time, perhaps from a backup",
        warning=True,
    )
    REPEATED_ERROR = Reason(
        "RepeatedError",
        "{count} times in a row{where} the same error (spec.recovery.maxIdenticalErrors={limit}): {why}",
        warning=True,
    )
    RESTART_REQUESTED = Reason(
        "RestartRequested",
        "a restart was asked for (spec.recovery.restartId is now {restart_id!r})",
    )
    MAX_RESTARTS = Reason(
        "MaxRestartsExceeded",
        "{count} restarts within {window} s are more than spec.recovery.maxRestarts={limit}; the last: {why}",
        warning=True,
    )
    DEADLINE_EXCEEDED = Reason(
        "DeadlineExceeded", "active for more than spec.activeDeadlineSeconds={seconds} s", warning=True
    )
    SUSPENDING = Reason("Suspending", "waiting for {left} pods to leave; {state}")
    SUSPENDED = Reason("Suspended", "{state}; spec.suspend: false (convoy resume) lets it run on")
    SUSPENDED_UNSAVED = Reason(
        "SuspendedWithoutCheckpoint",
        "its last steps were not saved: {state}; see its events and its condition Checkpointing; "
        "spec.suspend: false (convoy resume) lets it run on",
        warning=True,
    )
    SPEC_CHANGED = Reason(
        "SpecChanged",
        "{fields} differ from what runs; undo the change, or suspend and resume the job to apply it",
        warning=True,
    )
    RESUMED = Reason("Resumed", "spec.suspend is false again")
    COMPLETED = Reason("Completed", "{what}")
    EXPIRED = Reason("Expired", "finished {seconds} s ago: deleted as spec.ttlSecondsAfterFinished asks")
    NEW_HARDWARE = Reason("NewHardware", "first seen, on node {node}")
    NOT_SWEPT = Reason("NotSwept", "in service, but no sweep has passed it (GuardPolicy onJoin: Accept)")
    NOT_GUARDED = Reason("NotGuarded", "no GuardPolicy is for node {node}")
    TELEMETRY_LOST = Reason(
        "TelemetryLost",
        "nothing is heard of node {node} since {since}: what is known of it stands, check its convoy-agent",
        warning=True,
    )
    AWAITS_SWEEP = Reason("AwaitsSweep", "takes no pods until a sweep has passed it")
    AWAITS_RELEASE = Reason(
        "AwaitsRelease",
        "takes no pods, and the GuardPolicy has no sweeps to retest it: set spec.release of its NodeHealth",
        warning=True,
    )
    UNDER_TEST = Reason("UnderTest", "HealthSweep {name} is under way")
    SWEEP_PASSED = Reason("SweepPassed", "HealthSweep {name} passed it")
    SWEEP_FAILED = Reason("SweepFailed", "HealthSweep {name} failed it: {why}", warning=True)
    SWEPT = Reason("Swept", "{counts}")
    SWEEP_NOT_RUN = Reason("SweepNotRun", "{why}", warning=True)
    NODE_FAILED = Reason("NodeFailed", "{node}: {why}", warning=True)
    SWEEP_INCONCLUSIVE = Reason("SweepInconclusive", "HealthSweep {name} has no verdict: {why}")
    QUALIFICATION_EXPIRED = Reason("QualificationExpired", "the last sweep that passed it is too long ago")
    SLOWER_THAN_PEERS = Reason(
        "SlowerThanPeers",
        "{slowdown:.2f} times as slow as its peers ({cause}) in {source} since {since}; it has cost "
        "{loss:.0f} GPU-seconds",
        warning=True,
    )
    CONFIRMED_SLOW = Reason("ConfirmedSlow", "out of service: {why}", warning=True)
    CLEARED = Reason("Cleared", "nothing spoke against it for {seconds} s")
    DRAINING_NODE = Reason("DrainingNode", "jobs are moved away: {why}", warning=True)
    JOB_STAYS = Reason(
        "JobStays",
        "it is drained when {jobs} is over: spec.guard.action is Observe, or nothing is saved to go on from",
    )
    DRAIN_BLOCKED = Reason(
        "DrainBlocked",
        "{pods} pods are still there {seconds} s after the drain began; nothing is forced: look at their "
        "PodDisruptionBudgets",
        warning=True,
    )
    REPAIR_NEEDED = Reason("RepairNeeded", "waits for {owner} to do step {step}: {action}", warning=True)
    REPAIR_DONE = Reason("RepairDone", "{action} is done")
    REPAIR_TIMED_OUT = Reason(
        "RepairTimedOut", "{owner} did not do {action} within {seconds} s", warning=True
    )
    REPAIRS_EXHAUSTED = Reason("RepairsExhausted", "no step of spec.repair.ladder is left", warning=True)
    REQUALIFICATION_FAILED = Reason(
        "RequalificationFailed", "{count} retests in a row failed it; the last: {why}", warning=True
    )
    LEMON = Reason("Lemon", "{count} quarantines within {seconds} s", warning=True)
    ON_PROBATION = Reason("OnProbation", "in service again, watched until {until}")
    WRONGLY_ACCUSED = Reason(
        "WronglyAccused",
        "its jobs are as slow without it, or their ranks are slow elsewhere: released, not held against it",
    )
    EXEMPTED = Reason("Exempted", "left alone until {until}, by {user}: {why}", warning=True)
    EXEMPTION_OVER = Reason("ExemptionOver", "the exemption ended at {until}")
    CONDEMNED_BY_HAND = Reason("CondemnedByHand", "out of service, by {user}: {why}", warning=True)
    NO_LONGER_CONDEMNED = Reason("NoLongerCondemned", "spec.condemned was removed: it is retested")
    RELEASED_BY_HAND = Reason("ReleasedByHand", "put back into service, by {user}: {why}", warning=True)
    OBSERVED_ONLY = Reason("ObservedOnly", "GuardPolicy mode Observe, or none: nodes are not touched")
    MOVED = Reason("HardwareMoved", "was node {before}, is node {after}")

    GRANTED = Reason("Granted", "every budget grants it")
    NOTHING_WANTED = Reason("NothingWanted", "nothing is to be done")
    BREAKER_OPEN = Reason("BreakerOpen", "{want} waits: the breaker of GuardPolicy {policy!r} is {state}")
    POOL_BUDGET = Reason("PoolBudget", "{want} waits: {count} of {limit} nodes are drained or repaired")
    RACK_BUDGET = Reason("RackBudget", "{want} waits: {count} of {limit} nodes of rack {rack!r} are")
    JOB_BUDGET = Reason("JobBudget", "{want} waits: job {job} lost a node less than {seconds} s ago")
    RATE_BUDGET = Reason("RateBudget", "{want} waits: {count} of {limit} drains of this hour were begun")
    QUARANTINE_BUDGET = Reason(
        "QuarantineBudget", "{want} waits: {count} of {limit} nodes are out of service on suspicion"
    )
    SPARES_BUDGET = Reason(
        "SparesBudget", "{want} waits for an idle node: {count} are left, {limit} of them are reserved"
    )
    SWEEP_BUDGET = Reason("SweepBudget", "{want} waits: {count} of {limit} nodes are swept")
    BREAKER_CONFIRMED = Reason(
        "TooManyConfirmed", "{count} of {nodes} nodes were confirmed within {seconds} s", warning=True
    )
    BREAKER_SUSPECT = Reason("TooManySuspect", "{count} of {nodes} nodes are suspect", warning=True)
    BREAKER_SHARED = Reason(
        "CommonMode", "{count} of {all} confirmed nodes share {what} {name!r}", warning=True
    )
    BREAKER_WRONG = Reason(
        "ActionsInVain", "{count} of the last {all} actions did the jobs any good", warning=True
    )
    BREAKER_TRIAL = Reason("Trial", "one node that failed a sweep is let through")
    BREAKER_CLOSED = Reason("Quiet", "the node that was let through was rightly accused")
    RECONCILE_FAILED = Reason(
        "ReconcileFailed",
        "Convoy failed to work on this object, a fault of its own: {why}; it is tried again, please report",
        warning=True,
    )
