"""The conditions of each kind, their possible reasons, and the runbook page of each reason."""

from __future__ import annotations

from convoy_crds.condition_doc import (
    BREAKER,
    CONTAINERS,
    EVENTS,
    FAULTS,
    GANG,
    HISTORY,
    INCURABLE,
    QUEUE,
    ConditionDoc,
)
from convoy_crds.experiment_conditions import EXPERIMENT_CONDITIONS
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.checkpointing import CHECKPOINTING
from convoy_crds.serving_conditions import SERVING_CONDITIONS
from convoy_crds.spotpool_conditions import SPOTPOOL_CONDITIONS
from convoy_crds.terms import ConditionType

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
    Reasons.ADVICE_DENIED,
)
_ENDS = (Reasons.MAX_RESTARTS, Reasons.REPEATED_ERROR, Reasons.DEADLINE_EXCEEDED, *INCURABLE)
_JOB, _HEALTH = "TrainingJob", "NodeHealth"

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
        (Reasons.ALL_SCHEDULED, *CONTAINERS),
        "trainingjob-scheduled",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.GANG_SCHEDULED,
        "Every pod of the gang has a node. Absent without a gang scheduler. The first eight reasons below "
        "appear in the conditions Scheduled and Running, while Convoy creates no pods; the last two only in "
        "Events.",
        (
            *GANG,
            Reasons.GANG_PLACED,
            Reasons.GANG_WAITING,
            Reasons.GANG_IGNORED,
            Reasons.SCHEDULER_MISSING,
            Reasons.ADVICE_SKIPPED,
            Reasons.PLACE_ADVISED,
        ),
        "trainingjob-placement",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.ADMITTED,
        "The queue has admitted the job. Absent without a queue. All reasons below except the last three "
        "also appear in the conditions Scheduled and Running, while Convoy creates no pods.",
        (*QUEUE, Reasons.QUEUE_CAPTURED, Reasons.QUEUE_ADMITTED, Reasons.QUEUE_PARTIAL),
        "trainingjob-queue",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.RESTARTING,
        "After a fault, the next incarnation is starting. Absent otherwise.",
        FAULTS,
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
        ConditionType.ADVICE,
        "The job violates a rule of advice of severity Warning. Absent without `spec.lint`. The training "
        "does not depend on it.",
        (Reasons.RULES_VIOLATED, Reasons.HINTS_ONLY, Reasons.RULES_KEPT),
        "trainingjob-advice",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.TRACE_RECORDED,
        "The files of the newest recording are in the store. Unknown while it waits or records. Absent "
        "without `spec.trace`. The training does not depend on it.",
        (
            Reasons.TRACE_ARMED,
            Reasons.TRACE_WAITING,
            Reasons.TRACE_RECORDING,
            Reasons.TRACE_STORED,
            Reasons.TRACE_RANKS_UNKNOWN,
            Reasons.TRACE_STORE_UNKNOWN,
            Reasons.TRACE_STORE_NOT_ALLOWED,
            Reasons.TRACE_STEPS_PASSED,
            Reasons.TRACE_BEYOND_END,
            Reasons.TRACE_TOO_LARGE,
            Reasons.TRACE_NOT_STORED,
            Reasons.TRACE_NOT_RECORDED,
            Reasons.TRACE_MISSING,
            Reasons.TRACE_INTERRUPTED,
            Reasons.TRACE_JOB_ENDED,
        ),
        "trainingjob-trace",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.INDEPENDENT_READY,
        "Enough pods of the Independent roles run, and none was given up. Absent without such a role. The "
        "process group does not depend on these pods.",
        (
            Reasons.INDEPENDENT_RUNNING,
            Reasons.INDEPENDENT_WAITING,
            Reasons.INDEPENDENT_BELOW_MINIMUM,
            Reasons.INDEPENDENT_NOT_STARTING,
            Reasons.INDEPENDENT_GIVEN_UP,
            Reasons.INDEPENDENT_REFUSED,
        ),
        "trainingjob-independent",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.SPOT_POOL_READY,
        "The SpotPools grant all pods that the job's roles want. Absent if no role names a pool. The process "
        "group does not depend on these pods.",
        (
            Reasons.POOL_GRANTED,
            Reasons.POOL_PENDING,
            Reasons.UNKNOWN_POOL,
            Reasons.POOL_NOT_ALLOWED,
            Reasons.POOL_HOLDS_GROUP,
            Reasons.POOL_FULL,
            Reasons.POOL_NAMESPACES,
            Reasons.POOL_BUDGET_SPENT,
            Reasons.NAMESPACE_BUDGET_SPENT,
        ),
        "trainingjob-spotpool",
    ),
    ConditionDoc(
        _JOB,
        ConditionType.RESULT_REFUSED,
        "The job left a result that cannot be stored. Absent otherwise.",
        (Reasons.MALFORMED_RESULT,),
        "trainingjob-result",
    ),
    ConditionDoc(
        _JOB,
        EVENTS,
        "Other events of the job.",
        (Reasons.RESUMED, Reasons.EXPIRED, Reasons.RECONCILE_FAILED),
        "trainingjob-ending",
    ),
    *SERVING_CONDITIONS,
    *EXPERIMENT_CONDITIONS,
    *SPOTPOOL_CONDITIONS,
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
