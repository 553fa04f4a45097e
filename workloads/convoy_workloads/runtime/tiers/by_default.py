"""Checkpoints in memory of a job that does not ask for them. Their faults never end the program.

Without these checkpoints the program would run, so it must also run with them. A program that never calls
`restore` saves nothing. After a fault the rank saves nothing more in this incarnation, and neither do the
other ranks, because all ranks save together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.checkpointer import DECISION_SECONDS
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.rank_collectives import all_true


class DefaultCheckpoints(MemoryCheckpoints):
    """The checkpoints of one rank of a job without `spec.checkpoint.tiers`."""

    _off = False
    """True after a fault. This rank saves nothing more."""

    @property
    def usable(self) -> bool:
        """True if the ranks have agreed on the state to resume from, so that they can save."""
        return self._buffers.may_save

    def due(self) -> bool:
        """Return True if this rank requests a save, see `MemoryCheckpoints.due`."""
        return self.usable and not self._off and super().due()

    def busy(self) -> bool:
        """Return True if this rank cannot start a save. After a fault this keeps all ranks from saving."""
        return not self.usable or self._off or super().busy()

    def ready(self, model: Any, optimizer: Any) -> None:
        """Allow saves, unless the agents could not prepare the restore."""
        if not self._off:
            super().ready(model, optimizer)

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Save this rank's part of the state. Return False if that fails."""
        try:
            return super().start(state, step)
        except Exception as error:  # Their errors are not those of the program.
            self._turn_off(f"{type(error).__name__}: {error}")
            return False

    def stage_last(
        self, state: dict[str, Any], step: int, timeout: float = DECISION_SECONDS, *, end: bool = False
    ) -> Generation | None:
        """Do the first half of this process's last save. Return None if any rank cannot save."""
        if not all_true(lambda: not self._off, self._group):
            return None
        try:
            return super().stage_last(state, step, timeout, end=end)
        except Exception as error:  # See `start`.
            self._turn_off(f"{type(error).__name__}: {error}")
            return None

    def finish_last(self, staged: Generation | None, timeout: float = DECISION_SECONDS) -> bool:
        """Do the second half of this process's last save. Return True if the last state is committed."""
        return staged is not None and super().finish_last(staged, timeout)

    def choose(
        self, model: Any = None, optimizer: Any = None, prepare: Callable[[], None] | None = None
    ) -> Record | None:
        """Choose the generation that all ranks resume from. Return None if the job starts at step 0.

        If a node has no memory for the restore, all ranks start at step 0 and save nothing.
        """
        found = super().choose(model, optimizer, prepare)
        if self._restoring.declined:
            self._turn_off(self._restoring.declined)
        return found

    def _turn_off(self, why: str) -> None:
        self._off = True
        log_line(f"RANK {self._rank} SAVES NO CHECKPOINTS BY DEFAULT: {why}")
