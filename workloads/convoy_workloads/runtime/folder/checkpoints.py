"""A rank's saves to the folder, and continuing from the newest that can be read."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.folder import storage
from convoy_workloads.runtime.folder.records import CommitRecord, superseded
from convoy_workloads.runtime.generation import Generation, Record
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers.rank_collectives import all_true

WAIT_SECONDS = 120.0
"""For the save before to be written, and for the other ranks' parts, unless the caller says otherwise."""
SLOW_SECONDS = 30.0
"""A save that takes longer, and longer than it may be late, is complained about."""


class FolderCheckpoints:
    """The generations below `root`. One save is in flight at a time."""

    def __init__(self, root: Path, incarnation: int, rank: int, seconds: float, group: Any = None) -> None:
        """`seconds`: longest time between two checkpoints; `group`: gloo, all ranks; None when alone."""
        self.root = root
        self.incarnation = incarnation
        self._rank = rank
        self._seconds = seconds
        self._group = group
        self._last = time.monotonic()
        self._unreadable: set[Generation] = set()
        self._in_flight: Generation | None = None
        """The newest that was begun."""
        self._done: Generation | None = None
        """The newest that this rank has done its share for; rank 0's is to commit it."""
        self._missed = False
        """Whether the last step that was to be saved was not, since the save before was not written yet."""
        self._slow: Generation | None = None
        self._thread: threading.Thread | None = None
        self.stall_seconds = 0.0
        """How long the newest save kept the training waiting."""
        self.copy_seconds = 0.0
        """No copies are made of what is in a folder."""

    @property
    def journal(self) -> None:
        """None is kept in a folder."""
        return None

    @property
    def marks_the_end(self) -> bool:
        """Whether what the job ends with is saved otherwise than the rest."""
        return False

    def due(self) -> bool:
        """Whether this rank wishes a save now. Rank 0 wishes for all."""
        return self._rank == 0 and time.monotonic() - self._last >= self._seconds

    def busy(self) -> bool:
        """Whether this rank is still at its share of the last save. A new one would have to wait."""
        if self._thread is None or not self._thread.is_alive():
            return False
        since = time.monotonic() - self._last
        if self._slow != self._in_flight and since > max(self._seconds, SLOW_SECONDS):
            self._slow = self._in_flight
            log_line(
                f"RANK {self._rank} WRITES TO {self.root} SINCE {since:.0f} s: the next checkpoint waits"
            )
        return True

    def ready(self, model: Any, optimizer: Any) -> None:
        """Nothing has to be made ready in a folder."""

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Saves `state` beside the training; all ranks call it at the same step, while none is `busy`. False:
        already saved.
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
        """The quick half of the last save; `finish_last` needs no process group. None: already saved, or the
        save before is not written within `timeout` seconds.
        """
        return self._stage(state, step, timeout)

    def finish_last(self, staged: Any, timeout: float = WAIT_SECONDS) -> bool:
        """The slow half; the other ranks have `timeout` seconds for theirs. Whether the last step is
        committed.
        """
        if staged is not None:
            self._finish(staged, timeout)
        if self._missed or not self.settle(timeout):
            return False
        if self._in_flight is None:
            return True
        return storage.sealed(self.root / self._in_flight.name, timeout)

    def settle(self, timeout: float = WAIT_SECONDS) -> bool:
        """Waits for the save in flight. Whether this rank has done its share, or there is none."""
        over = self._previous_save_done(timeout)
        if self._in_flight is None or (over and self._in_flight == self._done):
            return True
        log_line(
            f"checkpoint {self._in_flight.name} is not committed: the job would continue from an older one"
        )
        return False

    def choose(self, model: Any = None, optimizer: Any = None) -> Record | None:
        """The newest generation that every rank can read; None when nothing is saved yet.

        DataError when there are generations and none can be read: a fresh start would throw them away.
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
            log_line(f"CHECKPOINT {record.generation.name} IS CORRUPT: {trouble}")
        if troubles:
            raise DataError(
                f"no checkpoint in {self.root} can be read: {'; '.join(troubles)}. Nothing was deleted. "
                f"Check the disk behind {self.root} and start again; to begin at step 0 instead, "
                "delete the gen-* folders there"
            )
        return None

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Reads the chosen generation into `state`."""
        from convoy_workloads.runtime.folder import snapshot  # noqa: PLC0415

        snapshot.load(state, self.root / record.generation.name, self._group)

    def _previous_save_done(self, timeout: float) -> bool:
        """Whether no save of this rank is being written, within so many seconds."""
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
                f"RANK {self._rank} DOES NOT SAVE STEP {step}: the save before still goes to {self.root}"
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
        except Exception as error:  # a full disk must not end the training
            log_line(f"CHECKPOINT {staged.generation.name} FAILED: {type(error).__name__}: {error}")
            storage.mark_failed(staged.folder, self._rank)
            return
        self._done = staged.generation
        if self._rank == 0:
            self._delete_superseded(staged.generation)

    def _delete_failed(self, coming: Generation) -> None:
        """Deletes what saves before this one have left that failed: on a full disk it holds the room."""
        with contextlib.suppress(OSError):
            records, unreadable = storage.records(self.root)
            kept = self._unreadable.union(unreadable, (one.generation for one in records))
            for old in storage.generations(self.root):
                if old < coming and old not in kept:
                    storage.remove(self.root, old)

    def _delete_superseded(self, newest: Generation) -> None:
        """Deletes what is superseded by a committed generation."""
        try:
            records, unreadable = storage.records(self.root)
            self._unreadable.update(unreadable)
            committed = [one.generation for one in records]
            for old in superseded(storage.generations(self.root), committed, newest, self._unreadable):
                storage.remove(self.root, old)
        except OSError as error:  # the next commit collects again
            log_line(f"{self.root} DOES NOT ANSWER: what is superseded is still there: {error}")

    def _find_fault(self, record: CommitRecord) -> str:
        """What is wrong with a generation, found by all ranks together."""
        folder = self.root / record.generation.name
        if self._group is None:
            return storage.fault(folder, record)
        import torch.distributed as dist  # noqa: PLC0415

        world = dist.get_world_size(self._group)
        found: list[Any] = [None] * world
        dist.all_gather_object(found, storage.fault(folder, record, self._rank, world), group=self._group)
        return next((trouble for trouble in found if trouble), "")


def broadcast_from_rank_0(value: Any, group: Any) -> Any:
    """What rank 0 has."""
    if group is None:
        return value
    import torch.distributed as dist  # noqa: PLC0415

    box = [value]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]
