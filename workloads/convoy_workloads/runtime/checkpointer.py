"""The interface between a job and its checkpoint storage: the memory of its nodes (tiers/) or a folder
(folder/).
"""

from __future__ import annotations

from typing import Any, Protocol

from convoy_workloads.runtime.generation import Record

DECISION_SECONDS = 120.0
"""Default limit, in seconds, for the decision on a save that every rank has written.

Calls between agents time out after 60 s. Twice that time lets an agent that restarts meanwhile call again.
"""


class Replay(Protocol):
    """The steps after a full save, stored as the optimizer's inputs."""

    def replay(self, model: Any, optimizer: Any) -> bool:
        """Replay the steps on the program's objects, which hold the full save. Return True if the result is
        the saved state.

        After False, call `discard_journal`.
        """
        ...

    def discard_journal(self) -> Record:
        """Discard the steps. Return the record of the full save, which must be loaded again."""
        ...

    def overlay(self, state: dict[str, Any]) -> None:
        """Read the values that no step computes, such as generators and buffers, into the state after the
        replay.
        """
        ...


class Checkpointer(Protocol):
    """The checkpoints of one rank. One save is in flight at a time. All ranks save the same step together."""

    @property
    def incarnation(self) -> int:
        """The incarnation under which the rank saves."""
        ...

    @property
    def final_save_differs(self) -> bool:
        """True if the final state of the job is saved differently from other states."""
        ...

    @property
    def stall_seconds(self) -> float:
        """Seconds that the newest save stopped the training; 0 before the first save. One-time preparations
        are excluded.
        """
        ...

    @property
    def copy_seconds(self) -> float:
        """Seconds until the newest fully copied save had its copies on other nodes; 0 without copies."""
        ...

    def due(self) -> bool:
        """Return True if this rank requests a save."""
        ...

    def busy(self) -> bool:
        """Return True if this rank cannot start a save."""
        ...

    def ready(self, model: Any, optimizer: Any) -> None:
        """Allow saves: the state to resume from is loaded. All ranks call this."""
        ...

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Start to save `state` in the background, while no rank is `busy`. Return True if a save was
        started.
        """
        ...

    def stage_last(self, state: dict[str, Any], step: int, timeout: float = ..., *, end: bool = False) -> Any:
        """Do the half of the last save that needs the process group. `end`: True if the job ends with this
        state.
        """
        ...

    def finish_last(self, staged: Any, timeout: float = ...) -> bool:
        """Do the other half of the last save and wait for the decision. Return True if the last step is
        committed.
        """
        ...

    def choose(self, model: Any = None, optimizer: Any = None) -> Record | None:
        """Choose the generation that all ranks resume from. Return None to start at step 0."""
        ...

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Read the full save of the chosen generation into `state`."""
        ...

    @property
    def journal(self) -> Replay | None:
        """The steps that the chosen generation has after its full save; None if it has none."""
        ...
