"""A rank's saves to the folder, and the restore from the newest readable generation."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.folder import storage
from convoy_workloads.runtime.folder.records import CommitRecord, superseded
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers.rank_collectives import all_true

WAIT_SECONDS = 120.0
"""Default time limit, in seconds, for each of two waits of a save: until the previous save has ended, and
until the other ranks have written their parts.
"""
SLOW_SECONDS = 30.0
"""Seconds. A save that takes longer than this, and also longer than the interval between two saves, is
reported in the log.
"""


class FolderCheckpoints:
    """The generations in the folder `root`. One save is in flight at a time."""

    def __init__(self, root: Path, incarnation: int, rank: int, seconds: float, group: Any = None) -> None:
        """`seconds`: time between two saves. `group`: gloo group of all ranks; None if the rank is alone."""
        self.root = root
        self.incarnation = incarnation
        self._rank = rank
        self._seconds = seconds
        self._group = group
        self._last = time.monotonic()
        self._unreadable: set[Generation] = set()
        self._in_flight: Generation | None = None
        """Generation of the newest save that this rank has started; None before the first save."""
        self._done: Generation | None = None
        """Newest generation of which this rank has written its part. On rank 0, this generation is also
        committed. None before the first save.
        """
        self._missed = False
        """True if the last requested save was skipped, because the previous save was still being written."""
        self._slow: Generation | None = None
        self._thread: threading.Thread | None = None
        self.stall_seconds = 0.0
        """Seconds for which the newest save stopped the training; 0 before the first save."""
        self.copy_seconds = 0.0
        """Always 0: a folder has no copies on other nodes."""

    @property
    def usable(self) -> bool:
        """Always True."""
        return True

    @property
    def journal(self) -> None:
        """Always None: a folder keeps no journal."""
        return None

    @property
    def in_store(self) -> None:
        """Always None: a folder is no store."""
        return None

    @property
    def final_save_differs(self) -> bool:
        """Always False: the final state of the job is saved like every other state."""
        return False

    def due(self) -> bool:
        """Return True if this rank requests a save. Only rank 0 does, for all ranks, once the save interval
        has passed since the last save.
        """
        return self._rank == 0 and time.monotonic() - self._last >= self._seconds

    def busy(self) -> bool:
        """Return True if this rank is still writing its part of the last save, so that a new save would
        have to wait.
        """
        if self._thread is None or not self._thread.is_alive():
            return False
        since = time.monotonic() - self._last
        if self._slow != self._in_flight and since > max(self._seconds, SLOW_SECONDS):
            self._slow = self._in_flight
            log_line(
                f"RANK {self._rank} HAS BEEN WRITING TO {self.root} FOR {since:.0f} s: "
                "the next checkpoint waits for it"
            )
        return True

    def ready(self, model: Any, optimizer: Any) -> None:
        """Do nothing: a folder needs no preparation."""

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Start to save `state` in the background.

        Return False, and save nothing, if the state after `step` is already saved or if the previous save
        is still being written. All ranks call this at the same step, while no rank is `busy`.
        """
        staged = self._stage(state, step, WAIT_SECONDS)
        if staged is None:
            return False
        arguments = (staged, WAIT_SECONDS)
        self._thread = threading.Thread(target=self._finish, args=arguments, name="convoy-save", daemon=True)
        self._thread.start()
        return True

    def stage_last(
        self, state: dict[str, Any], step: int, timeout: float = WAIT_SECONDS, *, end: bool = False
    ) -> Any:
        """Do the quick half of this process's last save: the half that needs the process group.

        Return None if the state after `step` is already saved, or if the previous save is not written
        within `timeout` seconds.
        """
        return self._stage(state, step, timeout)

    def finish_last(self, staged: Any, timeout: float = WAIT_SECONDS) -> bool:
        """Do the slow half of this process's last save. The other ranks have `timeout` seconds to write
        their parts.

        Return True if the state of the last step is committed.
        """
        if staged is not None:
            self._finish(staged, timeout)
        if self._missed or not self.settle(timeout):
            return False
        if self._in_flight is None:
            return True
        return storage.sealed(self.root / self._in_flight.name, timeout)

    def settle(self, timeout: float = WAIT_SECONDS) -> bool:
        """Wait until this rank's newest save has ended. Return True if this rank has written its part, or
        if no save was started.
        """
        over = self._previous_save_done(timeout)
        if self._in_flight is None or (over and self._in_flight == self._done):
            return True
        log_line(
            f"checkpoint {self._in_flight.name} is not committed: a restart would resume from an older one"
        )
        return False

    def choose(
        self, model: Any = None, optimizer: Any = None, prepare: Callable[[], None] | None = None
    ) -> Record | None:
        """Choose the newest generation whose files are all readable. All ranks check the files together.
        Return None if the folder has no generation.

        Raises DataError if there are generations but none can be read, because a fresh start would discard
        them.
        """
        records: list[CommitRecord] = []
        complaints: dict[Generation, str] = {}
        if self._rank == 0:
            records, complaints = storage.records(self.root)
            for complaint in complaints.values():
                log_line(f"A COMMIT RECORD CANNOT BE READ: {complaint}")
        records, complaints = broadcast_from_rank_0((records, complaints), self._group)
        self._unreadable.update(complaints)
        troubles = list(complaints.values())
        for record in reversed(records):
            trouble = self._find_fault(record)
            if not trouble:
                return record
            self._unreadable.add(record.generation)
            troubles.append(trouble)
            log_line(f"CHECKPOINT {record.generation.name} IS CORRUPT: {trouble}; trying the one before")
        if troubles:
            raise DataError(
                f"no checkpoint in {self.root} can be read: {'; '.join(troubles)}. Nothing was deleted. "
                f"Check the disk behind {self.root} and start again; to begin at step 0 instead, "
                "delete the gen-* folders there"
            )
        return None

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Read the chosen generation into `state`."""
        from convoy_workloads.runtime.folder import snapshot  # noqa: PLC0415

        snapshot.load(state, self.root / record.generation.name, self._group)

    def _previous_save_done(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until this rank's previous save has ended. Return True if it has
        ended.
        """
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def _stage(self, state: dict[str, Any], step: int, timeout: float) -> Any:
        from convoy_workloads.runtime.folder import snapshot  # noqa: PLC0415

        generation = Generation(self.incarnation, step)
        if not all_true(lambda: self._previous_save_done(timeout), self._group):
            self._missed = True
            log_line(
                f"RANK {self._rank} DOES NOT SAVE STEP {step}: "
                f"the previous save is still being written to {self.root}"
            )
            return None
        self._missed = False
        self.settle()
        if self._in_flight == generation:
            return None
        began = time.monotonic()
        staged = snapshot.stage(state, self.root, generation, self._group)
        self._in_flight = generation
        self._last = time.monotonic()
        self.stall_seconds = self._last - began
        return staged

    def _finish(self, staged: Any, seconds: float) -> None:
        from convoy_workloads.runtime.folder import snapshot  # noqa: PLC0415

        try:
            if self._rank == 0:
                self._delete_failed(staged.generation)
            snapshot.write(staged)
            if self._rank == 0:
                snapshot.seal(staged, seconds)
        # Any error, such as a full disk, ends only this save and not the training.
        except Exception as error:
            log_line(f"CHECKPOINT {staged.generation.name} FAILED: {type(error).__name__}: {error}")
            storage.mark_failed(staged.folder, self._rank)
            return
        self._done = staged.generation
        if self._rank == 0:
            self._delete_superseded(staged.generation)

    def _delete_failed(self, coming: Generation) -> None:
        """Delete the remains of failed saves that are older than `coming`. On a full disk, the save of
        `coming` may need their space.
        """
        with contextlib.suppress(OSError):
            records, unreadable = storage.records(self.root)
            kept = self._unreadable.union(unreadable, (one.generation for one in records))
            for old in storage.generations(self.root):
                if old < coming and old not in kept:
                    storage.remove(self.root, old)

    def _delete_superseded(self, newest: Generation) -> None:
        """Delete the generations that the committed generation `newest` supersedes."""
        try:
            records, unreadable = storage.records(self.root)
            self._unreadable.update(unreadable)
            committed = [one.generation for one in records]
            for old in superseded(storage.generations(self.root), committed, newest, self._unreadable):
                storage.remove(self.root, old)
        except OSError as error:  # The next save tries again to delete them.
            log_line(
                f"OLD CHECKPOINTS IN {self.root} COULD NOT BE DELETED: {error}; the next save tries again"
            )

    def _find_fault(self, record: CommitRecord) -> str:
        """Check the files of a generation on all ranks together. Return the first fault; empty if there is
        none.
        """
        folder = self.root / record.generation.name
        if self._group is None:
            return storage.find_fault(folder, record)
        import torch.distributed as dist  # noqa: PLC0415

        world = dist.get_world_size(self._group)
        found: list[Any] = [None] * world
        dist.all_gather_object(
            found, storage.find_fault(folder, record, self._rank, world), group=self._group
        )
        return next((trouble for trouble in found if trouble), "")


def broadcast_from_rank_0(value: Any, group: Any) -> Any:
    """Return the `value` of rank 0 on every rank. All ranks of `group` call this."""
    if group is None:
        return value
    import torch.distributed as dist  # noqa: PLC0415

    box = [value]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]
