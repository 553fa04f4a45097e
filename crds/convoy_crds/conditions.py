"""The conditions of each kind, their possible reasons, and the runbook page of each reason."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.checkpointing import CHECKPOINTING
from convoy_crds.reasons.reason import Reason
from convoy_crds.reasons.serving import MODEL, PROGRESSING
from convoy_crds.terms import ConditionType

EVENTS = "Events"
"""Value of `ConditionDoc.name` in an entry for reasons that appear only in Events."""
HISTORY = "status.history"
"""Value of `ConditionDoc.name` in an entry for reasons in `status.history` of a NodeHealth. These reasons
also appear in Events.
"""
BREAKER = "status.breaker"
"""Value of `ConditionDoc.name` in an entry for reasons in `status.breaker` of a GuardPolicy."""


@dataclass(frozen=True, slots=True)
class ConditionDoc:
    """An entry about one condition of a kind and its reasons. An entry may instead be about reasons that
    appear outside of conditions; its name is then `EVENTS`, `HISTORY` or `BREAKER`.
    """

    kind: str
    name: str
    true_means: str
    """The situation in which the condition is True. In an entry that is not about a condition: the subject
    of the reasons.
    """
    reasons: tuple[Reason, ...]
    page: str = ""
    """Name of the page in docs/runbooks/conditions that explains the reasons of this entry, without `.md`.
    If an earlier entry contains the same reason, the page of the earlier entry explains it. Empty if
    earlier entries contain all reasons.
    """


_CONTAINERS = (
    Reasons.WAITING_FOR_PODS,
    Reasons.WAITING_FOR_AGENT,
    Reasons.UNSCHEDULABLE,
    Reasons.IMAGE_PULL,
    Reasons.CONTAINER_CONFIG,
    Reasons.CONTAINER_FAILING,
    Reasons.POD_NOT_STARTING,
    Reasons.POD_REJECTED,
    Reasons.POD_CONFLICT,
    Reasons.STARTING_PODS,
    Reasons.FENCING,
    Reasons.FENCING_COMPANY,
    Reasons.FENCING_ANSWERED,
)
_INCURABLE = (Reasons.BAD_PARAMS_EXIT, Reasons.DATA_ERROR, Reasons.COMMAND_NOT_FOUND, Reasons.NO_PYTHON)
"""Faults that end the job, because a restart cannot help."""
_FAULTS = (
    Reasons.RANK_FAILED,
    Reasons.RANK_KILLED,
    Reasons.RANK_CRASHED,
    Reasons.RANK_OOM,
    Reasons.CONTAINER_OOM,
    Reasons.RANK_HUNG,
    Reasons.RANK_NOT_ENDING,
    Reasons.ENDED_EARLY,
    Reasons.PEER_LOST,
    Reasons.PREEMPTED,
    Reasons.STORE_UNAVAILABLE,
    Reasons.POD_LOST,
    Reasons.INIT_FAILED,
    Reasons.CONTAINER_FAILED,
    Reasons.CONTAINER_STOPPED,
    Reasons.POD_DEADLINE,
    Reasons.STORAGE_LIMIT,
    Reasons.POD_UNFIT,
    Reasons.POD_NOT_ADMITTED,
    Reasons.POD_DELETED,
    Reasons.POD_PREEMPTED,
    Reasons.POD_EVICTED,
    Reasons.NODE_DRAINED,
    Reasons.STRAGGLER_SWAPPED,
    Reasons.SUSPECT_SWAPPED,
    Reasons.NODE_LOST,
    Reasons.REGROW,
    Reasons.RESTART_REQUESTED,
    Reasons.STATUS_BEHIND,
)
_REFUSED = (
    Reasons.UNKNOWN_ENGINE,
    Reasons.ENGINE_NOT_READY,
    Reasons.WRONG_ROLE_KIND,
    Reasons.INVALID_PARAMS,
    Reasons.UNKNOWN_STORE,
    Reasons.STORE_NOT_ALLOWED,
    Reasons.NOTHING_TO_RESUME,
    Reasons.INVALID_SPEC,
    Reasons.SPLIT_GROUP,
)
_ENDS = (Reasons.MAX_RESTARTS, Reasons.REPEATED_ERROR, Reasons.DEADLINE_EXCEEDED, *_INCURABLE)
_JOB, _SERVING, _HEALTH = "TrainingJob", "ServingJob", "NodeHealth"

CONDITION_DOCS: tuple[ConditionDoc, ...] = (
    ConditionDoc(
        _JOB,
        ConditionType.VALID,
        "The spec is valid, and the job runs it.",
        (Reasons.ACCEPTED, *_REFUSED, Reasons.SPEC_CHANGED),
        "trainingjob-valid",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.SCHEDULED,
        "Every pod has a node.",
        (Reasons.ALL_SCHEDULED, *_CONTAINERS),
        "trainingjob-scheduled",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.RESTARTING,
        "After a fault, the next incarnation is starting. Absent otherwise.",
        _FAULTS,
        "trainingjob-restarting",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.SUSPENDED,
        "The job's pods are deleted. Absent while `spec.suspend` is false.",
        (Reasons.SUSPENDING, Reasons.SUSPENDED, Reasons.SUSPENDED_UNSAVED),
        "trainingjob-ending",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.COMPLETE,
        "The job succeeded. Absent until then.",
        (Reasons.COMPLETED,),
        "trainingjob-ending",
    ),
    ConditionDoc(
        _JOB, ConditionType.FAILED, "The job failed. Absent until then.", _ENDS, "trainingjob-ending"
    ),
    ConditionDoc(
        _JOB,
        ConditionType.RUNNING,
        "Every rank of the incarnation runs. If False, the reason names the obstacle: one of the reasons "
        "below, or of Valid, Scheduled, Restarting, Suspended, Complete or Failed.",
        (
            Reasons.FORMING,
            Reasons.TRAINING,
            Reasons.SHRUNK,
            Reasons.BACK_OFF,
            Reasons.SCHEDULE_DEADLINE,
            Reasons.SCHEDULE_RETRY,
        ),
        "trainingjob-running",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.CHECKPOINTING,
        "The state is saved as `spec.checkpoint.tiers` asks, or by default. Absent without tiers, and until "
        "an incarnation has formed.",
        (*CHECKPOINTING, Reasons.UNKNOWN_STORE, Reasons.STORE_NOT_ALLOWED),
        "trainingjob-checkpointing",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.STRAGGLER_DETECTED,
        "A rank delays the others. Absent until the ranks of an incarnation have reported steps.",
        (
            Reasons.STRAGGLER,
            Reasons.SUSPECTED_STRAGGLER,
            Reasons.NO_STRAGGLER,
            Reasons.SLOW_TOGETHER,
            Reasons.DETECTOR_DEGRADED,
            Reasons.TOO_FEW_PEERS,
            Reasons.NO_TIMINGS,
            Reasons.LAYOUT_UNKNOWN,
        ),
        "trainingjob-straggler",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.METRICS_DROPPED,
        "The ranks report metrics that Convoy drops. Absent otherwise.",
        (Reasons.UNDECLARED_METRICS, Reasons.TOO_MANY_METRICS),
        "trainingjob-metrics",
    ),
    ConditionDoc(
        _JOB,
        EVENTS,
        "Other events of the job.",
        (Reasons.RESUMED, Reasons.EXPIRED, Reasons.RECONCILE_FAILED),
        "trainingjob-ending",
    ),
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
            *_FAULTS,
            *_INCURABLE,
            *_CONTAINERS,
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
        ConditionType.STRAGGLER_DETECTED,
        "A replica is slow against its peers at like load. Absent while there is none.",
        (Reasons.SLOW_REPLICA,),
        "servingjob-straggler",
    ),
    ConditionDoc(_SERVING, EVENTS, "Other events of the job.", (Reasons.RECONCILE_FAILED,)),
    ConditionDoc(
        "Engine",
        ConditionType.READY,
        "Jobs may name the engine.",
        (Reasons.ACCEPTED, Reasons.INVALID_SCHEMA, Reasons.INVALID_SPEC),
        "engine-ready",
    ),
    ConditionDoc(
        "CheckpointStore",
        ConditionType.READY,
        "Jobs can commit checkpoints to the store.",
        (
            Reasons.PROBED,
            Reasons.NOT_PROBED,
            Reasons.SECRET_NOT_FOUND,
            Reasons.SECRET_INCOMPLETE,
            Reasons.CLAIM_NOT_MOUNTED,
            Reasons.STORE_UNREACHABLE,
            Reasons.NO_CONDITIONAL_WRITES,
            Reasons.NO_HARD_LINKS,
            Reasons.INVALID_SPEC,
        ),
        "checkpointstore-ready",
    ),
    ConditionDoc(
        _HEALTH,
        ConditionType.QUALIFIED,
        "A valid sweep has passed the hardware, and there is no evidence against it.",
        (
            Reasons.SWEEP_PASSED,
            Reasons.ON_PROBATION,
            Reasons.NOT_SWEPT,
            Reasons.NOT_GUARDED,
            Reasons.AWAITS_SWEEP,
            Reasons.SLOWER_THAN_PEERS,
            Reasons.CONFIRMED_SLOW,
            Reasons.TELEMETRY_LOST,
            Reasons.EXEMPTED,
        ),
        "nodehealth-qualified",
    ),
    ConditionDoc(
        _HEALTH,
        ConditionType.ACTING,
        "The wanted action is under way, or no action is needed. If False, the reason names the obstacle.",
        (
            Reasons.NOTHING_WANTED,
            Reasons.GRANTED,
            Reasons.WOULD_ACT,
            Reasons.BREAKER_OPEN,
            Reasons.POOL_BUDGET,
            Reasons.RACK_BUDGET,
            Reasons.JOB_BUDGET,
            Reasons.RATE_BUDGET,
            Reasons.QUARANTINE_BUDGET,
            Reasons.SPARES_BUDGET,
            Reasons.SWEEP_BUDGET,
            Reasons.JOB_STAYS,
            Reasons.DRAIN_BLOCKED,
            Reasons.AWAITS_RELEASE,
        ),
        "nodehealth-acting",
    ),
    ConditionDoc(
        _HEALTH,
        HISTORY,
        "Reasons for each change of state.",
        (
            Reasons.NEW_HARDWARE,
            Reasons.MOVED,
            Reasons.UNDER_TEST,
            Reasons.SWEEP_FAILED,
            Reasons.SWEEP_INCONCLUSIVE,
            Reasons.QUALIFICATION_EXPIRED,
            Reasons.CLEARED,
            Reasons.DRAINING_NODE,
            Reasons.REPAIR_NEEDED,
            Reasons.REPAIR_DONE,
            Reasons.REPAIR_TIMED_OUT,
            Reasons.REPAIRS_EXHAUSTED,
            Reasons.REQUALIFICATION_FAILED,
            Reasons.LEMON,
            Reasons.WRONGLY_ACCUSED,
            Reasons.EXEMPTION_OVER,
            Reasons.CONDEMNED_BY_HAND,
            Reasons.NO_LONGER_CONDEMNED,
            Reasons.RELEASED_BY_HAND,
            Reasons.OBSERVED_ONLY,
        ),
        "nodehealth-history",
    ),
    ConditionDoc(
        "GuardPolicy",
        BREAKER,
        "Reasons for the state of the circuit breaker.",
        (
            Reasons.BREAKER_CONFIRMED,
            Reasons.BREAKER_SUSPECT,
            Reasons.BREAKER_SHARED,
            Reasons.BREAKER_WRONG,
            Reasons.BREAKER_TRIAL,
            Reasons.BREAKER_CLOSED,
        ),
        "guardpolicy-breaker",
    ),
    ConditionDoc(
        "HealthSweep",
        EVENTS,
        "Results of the run.",
        (Reasons.SWEPT, Reasons.SWEEP_NOT_RUN, Reasons.NODE_FAILED),
        "healthsweep-events",
    ),
)


def condition_docs(kind: str) -> list[ConditionDoc]:
    """Return the entries about conditions of one kind."""
    return [one for one in CONDITION_DOCS if one.kind == kind]


def reason_pages() -> dict[str, str]:
    """Return the name of the page that explains each reason, by name of the reason."""
    found: dict[str, str] = {}
    for doc in CONDITION_DOCS:
        for reason in doc.reasons:
            found.setdefault(reason.name, doc.page)
    return found
