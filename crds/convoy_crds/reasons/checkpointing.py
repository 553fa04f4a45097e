"""States of the saving of a job's checkpoints."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class CheckpointingReasons:
    """States of the saving of a job's checkpoints."""

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
    STORE_UNAVAILABLE = Reason(
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
