"""The conditions of a ServingJob, and their reasons."""

from __future__ import annotations

from convoy_crds.condition_doc import CONTAINERS, EVENTS, FAULTS, GANG, INCURABLE, ConditionDoc
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.scaling import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED
from convoy_crds.reasons.serving import MODEL, PROGRESSING, STATES
from convoy_crds.terms import ConditionType

_SERVING = "ServingJob"

SERVING_CONDITIONS: tuple[ConditionDoc, ...] = (
    ConditionDoc(
        _SERVING,
        ConditionType.VALID,
        "The spec is valid. If not, running replicas go on with the last valid spec.",
        (
            Reasons.ACCEPTED,
            Reasons.UNKNOWN_ENGINE,
            Reasons.ENGINE_NOT_READY,
            Reasons.WRONG_ROLE_KIND,
            Reasons.INVALID_PARAMS,
            Reasons.INVALID_SPEC,
            Reasons.ADVICE_DENIED,
        ),
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.MODEL_READY,
        "The model exists, and the agents can read it. Absent without `spec.model`.",
        MODEL,
        "servingjob-model",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.AVAILABLE,
        "Each role has as many ready replicas as `spec.rollout` demands.",
        (
            Reasons.SERVING,
            Reasons.SCALED_TO_ZERO,
            Reasons.MINIMUM_REPLICAS_UNAVAILABLE,
            Reasons.SUSPENDING,
            Reasons.SUSPENDED,
        ),
        "servingjob-available",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.PROGRESSING,
        "The replicas run the revision of the spec, or roll to it. False: the rollout is halted. Unknown: it "
        "is paused.",
        PROGRESSING,
        "servingjob-progressing",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.DEGRADED,
        "A replica is faulty. The reason is that of the gravest fault.",
        (
            Reasons.REPLICAS_HEALTHY,
            Reasons.REPLICA_MOVING,
            Reasons.REPLICA_FAILED,
            *FAULTS,
            *INCURABLE,
            *CONTAINERS,
            *(one for one in GANG if one is not Reasons.MAKING_ROOM),
            Reasons.GANG_IGNORED,
            Reasons.SCHEDULER_MISSING,
        ),
        "servingjob-degraded",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.SUSPENDED,
        "The pods are deleted. Absent while `spec.suspend` is false.",
        (Reasons.SUSPENDING, Reasons.SUSPENDED),
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.SLO_MET,
        "The replicas meet `spec.slo`. Unknown until they have reported requests. Absent without `spec.slo`.",
        (Reasons.SLO_MET, Reasons.SLO_MISSED, Reasons.SLO_UNKNOWN),
        "servingjob-slo",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.CHECKPOINTING,
        "The replicas save their states as `spec.checkpoint` asks. Absent without `spec.checkpoint.tiers`.",
        STATES,
        "servingjob-checkpointing",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.STRAGGLER_DETECTED,
        "A replica is slow against its peers at like load. Absent while there is none.",
        (Reasons.SLOW_REPLICA,),
        "servingjob-straggler",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.ADVICE,
        "The job violates a rule of advice of severity Warning. Absent without `spec.lint`. The replicas do "
        "not depend on it.",
        (Reasons.RULES_VIOLATED, Reasons.HINTS_ONLY, Reasons.RULES_KEPT),
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.ABLE_TO_SCALE,
        "The autoscaler may change the number of replicas. Absent unless a role has `scaling` with mode "
        "Convoy.",
        ABLE_TO_SCALE,
        "servingjob-scaling",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.SCALING_ACTIVE,
        "The metrics give the autoscaler a number of replicas.",
        SCALING_ACTIVE,
        "servingjob-scaling",
    ),
    ConditionDoc(
        _SERVING,
        ConditionType.SCALING_LIMITED,
        "A limit keeps the number of replicas from the one that the metrics ask for.",
        SCALING_LIMITED,
        "servingjob-scaling",
    ),
    ConditionDoc(
        _SERVING,
        EVENTS,
        "Other events of the job.",
        (Reasons.SUCCESSFUL_RESCALE, Reasons.RECONCILE_FAILED),
        "servingjob-scaling",
    ),
)
