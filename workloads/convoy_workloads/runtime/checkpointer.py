"""The interface between a job and its checkpoint storage, which is the memory of its nodes (tiers/) or a
folder (folder/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from convoy_workloads.runtime.generation import Record

DECISION_SECONDS = 120.0
"""Default limit, in seconds, for the decision whether a save is committed. The time starts when every rank
has written its part.

The limit is twice the 60 s after which a call between agents times out. So an agent that restarts during
the decision can repeat its call.
"""


class Replay(Protocol):
    """The journal of the chosen generation: the optimizer's inputs in the steps after the full save that
    the generation is based on.
    """

    def replay(self, model: Any, optimizer: Any) -> bool:
        """Replay the steps of the journal on the program's objects, into which the full save has already been
        loaded. Return True if the result equals the saved state.

        If this returns False, call `discard_journal`.
        """
        ...

    def discard_journal(self) -> Record:
        """Discard the steps of the journal. Return the record of the full save, which the caller must load
        again.
        """
        ...

    def overlay(self, state: dict[str, Any]) -> None:
        """After the replay, read into `state` the values that no optimizer step computes, such as
        generators and buffers.
        """
        ...


class Checkpointer(Protocol):
    """The checkpoints of one rank. One save is in flight at a time. All ranks save the same step together."""

    @property
    def incarnation(self) -> int:
        """The incarnation under which the rank saves."""
        ...

    @property
    def usable(self) -> bool:
        """False if the ranks have not called `choose`, and the job does not ask for checkpoints. Then they
        save nothing.
        """
        ...

    @property
    def final_save_differs(self) -> bool:
        """True if the storage treats the final state of the job differently from other states. After the
        last step, `Job.checkpoint` then saves nothing, and `Job.steps` saves the final state.
        """
        ...

    @property
    def in_store(self) -> bool | None:
        """True if the final state of the job is in the job's store, False if it is not yet there. None if the
        job has no store.
        """
        ...

    @property
    def stall_seconds(self) -> float:
        """Seconds for which the newest save stopped the training; 0 before the first save. Preparations
        that are needed only once, such as the allocation of memory, are excluded.
        """
        ...

    @property
    def copy_seconds(self) -> float:
        """Duration, in seconds, of the newest save that was copied to other nodes: from its start until all
        its copies were complete.

        The value is 0 if no save has been copied.
        """
        ...

    def due(self) -> bool:
        """Return True if this rank requests a save."""
        ...

    def busy(self) -> bool:
        """Return True if this rank cannot start a save."""
        ...

    def ready(self, model: Any, optimizer: Any) -> None:
        """Allow saves. All ranks call this once the state to resume from is loaded."""
        ...

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Start to save `state` in the background. Return True if a save was started.

        All ranks call this for the same step, while no rank is `busy`.
        """
        ...

    def stage_last(self, state: dict[str, Any], step: int, timeout: float = ..., *, end: bool = False) -> Any:
        """Do the first half of this process's last save: the half that needs the process group. Return the
        argument for `finish_last`.

        `end`: True if the job ends with this state.
        """
        ...

    def finish_last(self, staged: Any, timeout: float = ...) -> bool:
        """Do the second half of this process's last save. Wait until the agents (or rank 0, for a folder)
        commit the save. Return True if the state of the last step is committed.
        """
        ...

    def choose(
        self, model: Any = None, optimizer: Any = None, prepare: Callable[[], None] | None = None
    ) -> Record | None:
        """Choose the generation that all ranks resume from. Return None if the job starts at step 0.

        `prepare`: allocates memory for the state. It is called while the generation is checked, or not at
        all. It may be called more than once.
        """
        ...

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Read the full save of the chosen generation into `state`."""
        ...

    @property
    def journal(self) -> Replay | None:
        """The journal of the chosen generation; None if the generation is a full save."""
        ...


def usable(checkpoints: Checkpointer | None) -> Checkpointer | None:
    """Return the checkpoints if the ranks can save to them; otherwise None."""
    return checkpoints if checkpoints is not None and checkpoints.usable else None
