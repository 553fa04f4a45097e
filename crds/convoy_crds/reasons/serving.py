"""Reasons about the replicas, revisions and models of a ServingJob."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class ServingReasons:
    """Reasons about the replicas, revisions and models of a ServingJob."""

    SERVING = Reason("Serving", "{ready} of {desired} replicas are ready")
    MINIMUM_REPLICAS_UNAVAILABLE = Reason(
        "MinimumReplicasUnavailable",
        "role {role}: {ready} of {desired} replicas are ready, and spec.rollout demands {minimum}: {why}",
        warning=True,
    )
    SCALED_TO_ZERO = Reason(
        "ScaledToZero", "the desired number of replicas is 0, so no replica serves requests"
    )
    ROLLING_OUT = Reason(
        "RollingOut",
        "revision {revision}: {updated} of {desired} replicas are updated and ready, {old} older replicas "
        "are left{more}",
    )
    ROLLOUT_COMPLETE = Reason("RolloutComplete", "all replicas run revision {revision}{pinned}")
    ROLLOUT_PAUSED = Reason(
        "RolloutPaused",
        "the rollout of revision {revision} is paused, with {old} older replicas left; to go on, set "
        "spec.rollout.paused: false (convoy rollout resume {job})",
    )
    PROGRESS_DEADLINE = Reason(
        "ProgressDeadlineExceeded",
        "the rollout of revision {revision} is halted: it made no progress for {seconds} s "
        "(spec.rollout.progressDeadlineSeconds). {kept}. {why}. Correct the spec, or run: convoy rollout "
        "undo {job}",
        warning=True,
    )
    REVISION_FAILED = Reason(
        "RevisionFailed",
        "the rollout of revision {revision} is halted: its first replica failed. {kept}. {why}. Correct the "
        "spec, or run: convoy rollout undo {job}",
        warning=True,
    )
    REPLICAS_HEALTHY = Reason("ReplicasHealthy", "no replica is faulty")
    REPLICA_FAILED = Reason(
        "ReplicaFailed",
        "replica {replica} failed: {cause}. Convoy tries again at {until}. First fault: {why}",
        warning=True,
    )
    REPLICA_MOVING = Reason(
        "ReplicaMoving",
        "replica {replica} leaves node {node}, which {why}: Convoy replaces it within spec.rollout, and "
        "deletes it only after that",
    )
    MODEL_CHOSEN = Reason(
        "ModelChosen",
        "the replicas load step {step} of TrainingJob {job} from CheckpointStore {store!r}",
    )
    MODEL_IN_VOLUME = Reason(
        "ModelInVolume", "the replicas load the model in PersistentVolumeClaim {claim!r}, folder {path!r}"
    )
    MODEL_MISSING = Reason("ModelMissing", "{path}: {why}", warning=True)
    MODEL_NOT_FOUND = Reason(
        "ModelNotFound",
        "pod {pod} on node {node}: {why}. The TrainingJob may have removed the checkpoint: choose another "
        "step in spec.model.checkpoint (convoy checkpoint ls {job}), or keep more of them with "
        "checkpoint.tiers.remote.keepLast",
        warning=True,
    )
    MODEL_DIGEST_MISMATCH = Reason(
        "ModelDigestMismatch",
        "pod {pod} on node {node}: {why}. The checkpoint is damaged in the store: choose another step in "
        "spec.model.checkpoint (convoy checkpoint verify {job})",
        warning=True,
    )
    MODEL_STORE_UNREACHABLE = Reason(
        "ModelStoreUnreachable",
        "pod {pod} on node {node}: {why}. The agent tries again; check the store: kubectl describe "
        "checkpointstore {store}",
        warning=True,
    )
    MODEL_NOT_STORED = Reason(
        "ModelNotStored",
        "pod {pod}: node {node} cannot store the model: {why}. The agent tries again; free space on the "
        "node, or let the pod run elsewhere",
        warning=True,
    )
    MODEL_IN_JOURNAL = Reason(
        "ModelInJournal",
        "pod {pod} on node {node}: {why}. Choose a step without a journal in spec.model.checkpoint: convoy "
        "checkpoint export {job} --to model.safetensors names the newest",
        warning=True,
    )
    STATES_SAVED = Reason(
        "StatesSaved",
        "{saved} of {replicas} replicas have saved their state, {copied} of them with all copies on other "
        "nodes",
    )
    NO_STATE_SAVED = Reason(
        "NoStateSaved",
        "no replica has saved a state yet; Convoy keeps only what the program saves with "
        "convoy.ReplicaState().save(data) (import convoy)",
    )
    NO_STATE_MEMORY = Reason(
        "NoStateMemory",
        "replica {replica} cannot keep its state: on node {node}, {why}. Raise "
        "spec.checkpoint.tiers.local.memory or agent.checkpointMemoryMiB of the chart, or spread the "
        "replicas over more nodes",
        warning=True,
    )
    STATE_NOT_COPIED = Reason(
        "StateNotCopied",
        "the newest state of replica {replica} has no copies: node {node} cannot copy it to node {why}. If "
        "the receiving node has too little checkpoint memory, raise spec.checkpoint.tiers.local.memory or "
        "agent.checkpointMemoryMiB of the chart. Otherwise check the convoy-agents of both nodes",
        warning=True,
    )
    STATES_ON_ONE_NODE = Reason(
        "StatesOnOneNode",
        "all replicas of a role and revision are on node {node}, so no other node can keep copies of their "
        "states: spread the replicas over several nodes, or remove spec.checkpoint.tiers.peer",
        warning=True,
    )
    SLO_MET = Reason("ObjectivesMet", "{figures}")
    SLO_MISSED = Reason(
        "ObjectivesMissed",
        "{figures}; add replicas, or see the queue and the slowest replica: convoy why servingjob/{job}",
        warning=True,
    )
    SLOW_REPLICA = Reason(
        "SlowReplica",
        "replica {replica} on node {node} needs {slowdown} more compute time per token than its peers at "
        "like load{doubt}. Convoy does nothing about it: test the node with a HealthSweep, or delete pod "
        "{pod}",
        warning=True,
    )
    SLO_UNKNOWN = Reason(
        "ObjectivesUnknown",
        "no replica has reported requests in the last minute. A program without Convoy's serving front needs "
        "spec.roles[].metrics",
    )


MODEL = (
    ServingReasons.MODEL_CHOSEN,
    ServingReasons.MODEL_IN_VOLUME,
    ServingReasons.MODEL_MISSING,
    ServingReasons.MODEL_NOT_FOUND,
    ServingReasons.MODEL_DIGEST_MISMATCH,
    ServingReasons.MODEL_STORE_UNREACHABLE,
    ServingReasons.MODEL_NOT_STORED,
    ServingReasons.MODEL_IN_JOURNAL,
)
"""Reasons of the condition ModelReady, in the order of its page."""
STATES = (
    ServingReasons.STATES_SAVED,
    ServingReasons.NO_STATE_SAVED,
    ServingReasons.NO_STATE_MEMORY,
    ServingReasons.STATE_NOT_COPIED,
    ServingReasons.STATES_ON_ONE_NODE,
)
"""Reasons of the condition Checkpointing, in the order of its page."""
PROGRESSING = (
    ServingReasons.ROLLING_OUT,
    ServingReasons.ROLLOUT_COMPLETE,
    ServingReasons.ROLLOUT_PAUSED,
    ServingReasons.PROGRESS_DEADLINE,
    ServingReasons.REVISION_FAILED,
)
"""Reasons of the condition Progressing, in the order of its page."""
