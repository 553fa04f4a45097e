"""Reasons about saving a job's checkpoints."""

from __future__ import annotations

from convoy_crds.reasons.reason import Reason


class CheckpointingReasons:
    """Reasons about saving a job's checkpoints."""

    SAVING = Reason("Saving", "saving every {interval} to: {tiers}")
    NOTHING_SAVED = Reason(
        "NothingSaved",
        "no checkpoint exists yet (interval {interval}); Convoy stores only what the program saves with "
        "job.checkpoint() (import convoy)",
    )
    DEFAULT_MEMORY = Reason(
        "DefaultMemory",
        "saving every {interval} to the memory of the nodes by default: {copies} copy on another node, at "
        "most {memory} a node; spec.checkpoint.default: None turns it off",
    )
    DEFAULT_ONE_NODE = Reason(
        "DefaultOneNode",
        "checkpoints by default are only in the memory of node {node}: they survive restarts of ranks and "
        "pods, not the loss of the node. Spread the pods over several nodes",
    )
    DEFAULT_NO_COPIES = Reason(
        "DefaultNoCopies",
        "checkpoints by default have no copies on other nodes, which node {node} has no room for: {why}. Set "
        "spec.checkpoint.tiers, or raise agent.checkpointMemoryMiB of the chart",
    )
    DEFAULT_NO_ROOM = Reason(
        "DefaultNoRoom",
        "there are no checkpoints by default: on node {node}, {why}. Set spec.checkpoint.tiers.local, or "
        "raise agent.checkpointMemoryMiB of the chart",
    )
    MEMORY_YIELDED = Reason(
        "MemoryYielded",
        "saving has stopped: node {node} gave the job's memory to {why}. Saving goes on when there is room "
        "again. To keep the memory, set spec.checkpoint.tiers.local",
        warning=True,
    )
    PROGRAM_NEVER_SAVES = Reason(
        "ProgramNeverSaves",
        "a restart begins at step 0: the program does not save with Convoy. Call job.restore() and "
        "job.checkpoint() (import convoy), or save to a volume of your own",
    )
    SINGLE_DOMAIN = Reason(
        "SingleDomain",
        "saving every {interval} to: {tiers}; but all copies are on nodes with the same {key} ({where}): "
        "spread the job's pods, or set another label in spec.checkpoint.tiers.peer.topologyKey",
    )
    NO_PEER = Reason(
        "NoPeer",
        "all pods are on node {node}, so no other node can keep copies. If the node is lost, the state is "
        "lost too: spread the pods over several nodes",
        warning=True,
    )
    NO_CHECKPOINT_MEMORY = Reason(
        "NoCheckpointMemory",
        "no checkpoint can be saved: on node {node}, {why}. Raise agent.checkpointMemoryMiB of the chart "
        "or spec.checkpoint.tiers.local.memory, or use more nodes",
        warning=True,
    )
    CHECKPOINTS_LOST = Reason(
        "CheckpointsLost",
        "incarnation {incarnation} started at step 0: {why}. More nodes were lost at once than there are "
        "copies (spec.checkpoint.tiers.peer.copies)",
        warning=True,
    )
    INEXACT_JOURNAL = Reason(
        "InexactJournal",
        "Convoy saves only full checkpoints, no journals: on node {node}, a replay of the journal does not "
        "give the values of the running rank ({why}). Most likely code other than the optimizer changes "
        "these values. If this job was restored from a journal before, its state may differ from the "
        "original",
        warning=True,
    )
    NOT_STORED = Reason(
        "NotStored",
        "checkpoints are only in memory: node {node} cannot upload to CheckpointStore {name!r}: {why}",
        warning=True,
    )
    NOT_COPIED = Reason(
        "NotCopied",
        "the newest checkpoint has no copies, and Convoy saves no other checkpoint until this one is copied: "
        "node {node} cannot copy it to node {why}. If the receiving node has too little checkpoint memory, "
        "raise agent.checkpointMemoryMiB of the chart or spec.checkpoint.tiers.local.memory, or keep fewer "
        "copies (spec.checkpoint.tiers.peer.copies). Otherwise check the convoy-agents of both nodes",
        warning=True,
    )
    OVERDUE = Reason(
        "Overdue",
        "saving has stopped: the interval is {interval} and steps go on, but the newest checkpoint is "
        "from {at} (step {step}); check the logs of the ranks and of the convoy-agents on their nodes",
        warning=True,
    )
    STORE_UNAVAILABLE = Reason(
        "StoreUnavailable",
        "the ranks on node {node} wait to start: the newest checkpoint may be only in the "
        "CheckpointStore, which does not respond: {why}. The ranks start once the store responds. Restarts "
        "for this reason do not count toward spec.recovery.maxRestarts. See kubectl describe "
        "checkpointstores",
        warning=True,
    )
    STORE_NOT_READY = Reason(
        "StoreNotReady",
        "CheckpointStore {name!r} is not ready, so checkpoints may be only in memory: {why}",
        warning=True,
    )


CHECKPOINTING = (
    CheckpointingReasons.SAVING,
    CheckpointingReasons.DEFAULT_MEMORY,
    CheckpointingReasons.DEFAULT_NO_COPIES,
    CheckpointingReasons.DEFAULT_ONE_NODE,
    CheckpointingReasons.DEFAULT_NO_ROOM,
    CheckpointingReasons.PROGRAM_NEVER_SAVES,
    CheckpointingReasons.MEMORY_YIELDED,
    CheckpointingReasons.SINGLE_DOMAIN,
    CheckpointingReasons.INEXACT_JOURNAL,
    CheckpointingReasons.NOTHING_SAVED,
    CheckpointingReasons.NO_PEER,
    CheckpointingReasons.NO_CHECKPOINT_MEMORY,
    CheckpointingReasons.CHECKPOINTS_LOST,
    CheckpointingReasons.NOT_COPIED,
    CheckpointingReasons.OVERDUE,
    CheckpointingReasons.NOT_STORED,
    CheckpointingReasons.STORE_NOT_READY,
    CheckpointingReasons.STORE_UNAVAILABLE,
)
"""Reasons of the condition Checkpointing, in the order of its page."""
