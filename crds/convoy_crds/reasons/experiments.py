"""Reasons about the plan, the runs and the analysis of an Experiment."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class ExperimentReasons:
    """Reasons about the plan, the runs and the analysis of an Experiment."""

    REGISTERING_PLAN = Reason(
        "RegisteringPlan", "TrainingJob {job} writes the plan to CheckpointStore {store!r}"
    )
    PLAN_REGISTERED = Reason("PlanRegistered", "CheckpointStore {store!r} has the plan {hash}")
    REGISTRATION_FAILED = Reason(
        "RegistrationFailed",
        "TrainingJob {job} did not register the plan: {why}. Run: convoy why {job}. Then correct the plan, "
        "and create an experiment with another name",
        warning=True,
    )
    PLAN_MISMATCH = Reason(
        "PlanMismatch",
        "TrainingJob {job} computed another hash of the plan ({theirs}) than the operator ({ours}): install "
        "the operator and Engine 'experiment-analysis' from one release",
        warning=True,
    )
    AWAITS_STORE = Reason(
        "AwaitsStore",
        "spec.store: CheckpointStore {name!r} is not ready: {why}. The experiment goes on as soon as the "
        "store is ready: kubectl describe checkpointstore {name}",
        warning=True,
    )
    PLAN_KEPT = Reason("PlanKept", "all Engines have the images of the plan")
    ENGINE_CHANGED = Reason(
        "EngineChanged",
        "Engine {name!r} has image {now}, but the plan has {planned}. Blocks that ended after {done} others "
        "may have run with another image: check the report, or create an experiment with another name",
        warning=True,
    )
    PLAN_EDITED = Reason(
        "PlanEdited",
        "the spec differs from the registered plan {hash}: undo the edit, or create an experiment with "
        "another name. Until then, no job starts",
        warning=True,
    )
    TUNING = Reason("Tuning", "{left} of {all} arms are not tuned yet; {running} of them are being tuned")
    TUNING_FAILED = Reason(
        "TuningFailed",
        "spec.arms: TrainingJob {job} did not tune arm {arm!r}: {why}. Without equal tuning the comparison "
        "would not be fair. Run: convoy why {job}. Then create an experiment with another name",
        warning=True,
    )
    BLOCKS_RUNNING = Reason(
        "BlocksRunning",
        "{done} of {all} blocks have ended, {failed} of them failed; {running} runs are active",
    )
    RUNS_SUSPENDED = Reason(
        "RunsSuspended",
        "spec.suspend is true: no further run starts. {running} runs are active and go on to their end",
    )
    JOB_REFUSED = Reason(
        "JobRefused",
        "the API server refused to create job {job}: {why}. Convoy tries again",
        warning=True,
    )
    BLOCK_FAILED = Reason("BlockFailed", "block {block}, arm {arm}: {why}", warning=True)
    STALE_RESULT = Reason(
        "StaleResult",
        "job {job} belongs to an attempt that the experiment has replaced: its result does not count, and "
        "Convoy deletes it",
        warning=True,
    )
    TOO_MANY_FAILED_BLOCKS = Reason(
        "TooManyFailedBlocks",
        "{failed} blocks failed, more than spec.maxFailedBlocks={limit}. The last one is block {block}, arm "
        "{arm}: {why}",
        warning=True,
    )
    EXPERIMENT_STOPPED = Reason(
        "ExperimentStopped",
        "spec.stop became true after {done} of {all} blocks: no further run starts, and the ended blocks are "
        "analysed. The p-values hold only if nobody who had seen values chose this moment",
        warning=True,
    )
    EXPERIMENT_DEADLINE = Reason(
        "ExperimentDeadlineExceeded",
        "the experiment took longer than spec.activeDeadlineSeconds={seconds} s. {done} of {all} blocks have "
        "ended and are analysed; no further run starts",
        warning=True,
    )
    NOTHING_TO_ANALYSE = Reason(
        "NothingToAnalyse", "no block has ended, so there is nothing to analyse ({why})", warning=True
    )
    ANALYSING = Reason("Analysing", "TrainingJob {job} analyses {blocks} blocks")
    ANALYSIS_FAILED = Reason(
        "AnalysisFailed",
        "TrainingJob {job} did not analyse the blocks: {why}. The blocks stay in the status. Run: convoy why "
        "{job}",
        warning=True,
    )
    VERDICTS_READY = Reason(
        "VerdictsReady",
        "{summary}. CheckpointStore {store!r} has the report: convoy experiment report {name}",
    )
    CONTROL_FAILED = Reason(
        "ControlFailed",
        "control {control} failed: {why}. So there are no verdicts. CheckpointStore {store!r} has the "
        "report: convoy experiment report {name}",
        warning=True,
    )
    JOB_FAILED = Reason("JobFailed", "job {job} failed: {why}", warning=True)
    JOB_DISAPPEARED = Reason(
        "JobDisappeared",
        "job {job} was deleted before it had ended, and spec.maxAttempts={limit} does not allow another "
        "attempt",
        warning=True,
    )
    RUN_DEADLINE = Reason(
        "RunDeadlineExceeded",
        "job {job} took longer than spec.runDeadlineSeconds={seconds} s",
        warning=True,
    )
    NO_VALUE = Reason("NoValue", "outcome {outcome!r} has no value: {why}", warning=True)
    SERVER_FAILED = Reason(
        "ServerFailed", "ServingJob {job} cannot serve the run's requests: {why}", warning=True
    )
    LOAD_DISAPPEARED = Reason(
        "LoadDisappeared",
        "TrainingJob {job}, which sent the requests, was deleted before it had ended",
        warning=True,
    )
    FAULT_NOT_INJECTED = Reason(
        "FaultNotInjected",
        "the perturbation was not injected into pod {pod}: {why}",
        warning=True,
    )
    RUN_STOPPED = Reason("RunStopped", "the experiment ended before this run had ended")
