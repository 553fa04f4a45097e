"""The conditions of an Experiment, and their reasons."""

from __future__ import annotations

from convoy_crds.condition_doc import EVENTS, ConditionDoc
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType

_EXPERIMENT = "Experiment"

EXPERIMENT_CONDITIONS: tuple[ConditionDoc, ...] = (
    ConditionDoc(
        _EXPERIMENT,
        ConditionType.VALID,
        "The spec is valid. The plan is fixed at that time.",
        (
            Reasons.ACCEPTED,
            Reasons.UNKNOWN_ENGINE,
            Reasons.ENGINE_NOT_READY,
            Reasons.WRONG_ROLE_KIND,
            Reasons.INVALID_PARAMS,
            Reasons.UNKNOWN_STORE,
            Reasons.STORE_NOT_ALLOWED,
            Reasons.AWAITS_STORE,
            Reasons.INVALID_SPEC,
        ),
        "experiment-progressing",
    ),
    ConditionDoc(
        _EXPERIMENT,
        ConditionType.REGISTERED,
        "The store has the plan. No run starts before.",
        (
            Reasons.REGISTERING_PLAN,
            Reasons.PLAN_REGISTERED,
            Reasons.REGISTRATION_FAILED,
            Reasons.PLAN_MISMATCH,
        ),
        "experiment-plan",
    ),
    ConditionDoc(
        _EXPERIMENT,
        ConditionType.PLAN_KEPT,
        "All Engines have had the images of the plan since its registration. Once False, it stays False.",
        (Reasons.PLAN_KEPT, Reasons.ENGINE_CHANGED, Reasons.PLAN_EDITED),
        "experiment-plan",
    ),
    ConditionDoc(
        _EXPERIMENT,
        ConditionType.PROGRESSING,
        "The experiment goes on. If False, the reason names the obstacle, or the end.",
        (
            Reasons.TUNING,
            Reasons.BLOCKS_RUNNING,
            Reasons.RUNS_SUSPENDED,
            Reasons.JOB_REFUSED,
            Reasons.ANALYSING,
        ),
        "experiment-progressing",
    ),
    ConditionDoc(
        _EXPERIMENT,
        ConditionType.COMPLETE,
        "The report is in the store. Absent until then.",
        (Reasons.VERDICTS_READY, Reasons.CONTROL_FAILED),
        "experiment-ending",
    ),
    ConditionDoc(
        _EXPERIMENT,
        ConditionType.FAILED,
        "The experiment ended without a valid result. Absent otherwise.",
        (
            Reasons.TUNING_FAILED,
            Reasons.TOO_MANY_FAILED_BLOCKS,
            Reasons.NOTHING_TO_ANALYSE,
            Reasons.ANALYSIS_FAILED,
        ),
        "experiment-ending",
    ),
    ConditionDoc(
        _EXPERIMENT,
        ConditionType.STOPPED_EARLY,
        "The experiment stopped before all its blocks had ended. Its verdicts rest on fewer blocks than the "
        "plan has. Absent otherwise.",
        (
            Reasons.TOO_MANY_FAILED_BLOCKS,
            Reasons.EXPERIMENT_STOPPED,
            Reasons.EXPERIMENT_DEADLINE,
        ),
        "experiment-runs",
    ),
    ConditionDoc(
        _EXPERIMENT,
        EVENTS,
        "Reasons of failed runs, which are also in `status.blocks[].failures`, and other events.",
        (
            Reasons.BLOCK_FAILED,
            Reasons.JOB_FAILED,
            Reasons.JOB_DISAPPEARED,
            Reasons.RUN_DEADLINE,
            Reasons.NO_VALUE,
            Reasons.SERVER_FAILED,
            Reasons.LOAD_DISAPPEARED,
            Reasons.FAULT_NOT_INJECTED,
            Reasons.RUN_STOPPED,
            Reasons.STALE_RESULT,
            Reasons.RECONCILE_FAILED,
        ),
        "experiment-runs",
    ),
)
