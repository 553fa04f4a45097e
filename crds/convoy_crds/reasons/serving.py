"""Reasons about the replicas, revisions and models of a ServingJob."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class ServingReasons:
    """Reasons about the replicas, revisions and models of a ServingJob."""

    SERVING = Reason("Serving", "{ready} of {desired} replicas are ready")
    TOO_FEW_REPLICAS = Reason(
        "TooFewReplicas",
        "role {role}: {ready} of {desired} replicas are ready, and spec.rollout demands {minimum}: {why}",
        warning=True,
    )
    SCALED_TO_ZERO = Reason("ScaledToZero", "spec.replicas is 0, so no replica serves requests")
    ROLLING_OUT = Reason(
        "RollingOut",
        "revision {revision}: {updated} of {desired} replicas are updated and ready, {old} older replicas "
        "are left{more}",
    )
    ROLLOUT_COMPLETE = Reason("RolloutComplete", "all replicas run revision {revision}")
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
    MODEL_CHOSEN = Reason(
        "ModelChosen",
        "the replicas load step {step} of TrainingJob {job} from CheckpointStore {store!r}",
    )
    MODEL_IN_VOLUME = Reason(
        "ModelInVolume", "the replicas load the model in PersistentVolumeClaim {claim!r}, folder {path!r}"
    )
    MODEL_MISSING = Reason("ModelMissing", "{path}: {why}", warning=True)
    SLO_MET = Reason("ObjectivesMet", "{figures}")
    SLO_MISSED = Reason(
        "ObjectivesMissed",
        "{figures}; add replicas, or see the queue and the slowest replica: convoy why servingjob/{job}",
        warning=True,
    )
    SLO_UNKNOWN = Reason("ObjectivesUnknown", "no replica has reported requests yet")
