"""Checkpoints of a job: when they are due, saving beside the training, and continuing from the right one."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from convoy_workloads.runtime import storage
from convoy_workloads.runtime.checkpointer import Checkpointer
from convoy_workloads.runtime.commits import ABANDONED, COMMITTED, DECISION_SECONDS, PENDING, Commits
from convoy_workloads.runtime.errors import DataError, PeerLost
from convoy_workloads.runtime.lineage import Branch, Generation, Record, doomed, lineage
from convoy_workloads.runtime.place import Place
from convoy_workloads.runtime.saying import say
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints

LAG_SECONDS = 5.0
"""How much later than rank 0 another rank may learn of a decision."""

SURVEYS = 3
"""How often generations are looked for again because one was deleted while it was being read."""

SLOW_SECONDS = 30.0
"""A share that takes longer to write, and longer than a save may be late, is complained about."""


class Checkpoints:
    """The generations below `root`. One save is in flight at a time."""

    def __init__(self, root: Path, incarnation: int, rank: int, seconds: float, group: Any = None) -> None:
        """`seconds`: longest time between two checkpoints; `group`: gloo, all ranks; None when alone."""
        self.root = root
        self.incarnation = incarnation
        self._rank = rank
        self._seconds = seconds
        self._group = group
        self._last = time.monotonic()
        self._parent: Generation | None = None
        self._spared: set[Generation] = set()
        self._untold: Branch | None = None
        """Where this incarnation began, while the volume has not taken it."""
        self._flying: Generation | None = None
        self._slow: Generation | None = None
        self._thread: threading.Thread | None = None
        self.commits = Commits(rank, self._committed)
        self.stall_seconds = 0.0
        """How long the newest save kept the training waiting."""
        self.copy_seconds = 0.0
        """No copies are made of what is on a volume."""

    @property
    def journal(self) -> None:
        """None is kept on a volume."""
        return None

    @property
    def marks_the_end(self) -> bool:
        """Whether what the job ends with is saved otherwise than the rest."""
        return False

    def due(self) -> bool:
        """Whether this rank wishes a save now. Rank 0 wishes for all."""
        since = time.monotonic() - self._last
        if self._rank != 0 or since < self._seconds:
            return False
        pending = self._flying is not None and self.commits.wait(self._flying, 0) == PENDING
        return not pending or self.commits.overdue()

    def busy(self) -> bool:
        """Whether this rank's share of the last save is still being written. A new one would have to wait."""
        if self._thread is None or not self._thread.is_alive():
            return False
        since = time.monotonic() - self._last
        if self._slow != self._flying and since > max(self._seconds, SLOW_SECONDS):
            self._slow = self._flying
            say(f"RANK {self._rank} WRITES TO {self.root} SINCE {since:.0f} s: the next checkpoint waits")
        return True

    def ready(self, model: Any, optimizer: Any) -> None:
        """Nothing has to be made ready on a volume."""

    def start(self, state: dict[str, Any], step: int) -> bool:
        """Saves `state` beside the training; all ranks call it at the same step, while none is `busy`. False:
        already saved.
        """
        staged = self._stage(state, step)
        if staged is None:
            return False
        self._thread = threading.Thread(target=self._finish, args=(staged,), name="convoy-save", daemon=True)
        self._thread.start()
        return True

    def stage_last(
        self, state: dict[str, Any], step: int, timeout: float = DECISION_SECONDS, *, end: bool = False
    ) -> Any:
        """The quick half of the last save; `finish_last` needs no process group. None: already saved."""
        return self._stage(state, step)

    def finish_last(self, staged: Any, timeout: float = DECISION_SECONDS) -> bool:
        """The slow half, and the decision. Whether the last step is committed."""
        if staged is not None:
            self._finish(staged)
        return self.settle(timeout)

    def settle(self, timeout: float = DECISION_SECONDS) -> bool:
        """Waits for the save in flight, `timeout` seconds for its decision. Whether it is committed, or there
        is none.

        RuntimeError when the volume has not taken this rank's share in `DECISION_SECONDS`.
        """
        if self._thread is not None:
            self._thread.join(DECISION_SECONDS)
            if self._thread.is_alive():
                raise RuntimeError(f"{self.root} has not taken a checkpoint within {DECISION_SECONDS:.0f} s")
            self._thread = None
        if self._flying is None:
            return True
        state = self.commits.wait(self._flying, timeout)
        if state == PENDING:
            self.commits.abandon()
            state = ABANDONED
        if state != COMMITTED:
            say(f"checkpoint {self._flying.name} is {state}: the job would continue from an older one")
        return state == COMMITTED

    def choose(self, model: Any = None, optimizer: Any = None) -> Record | None:
        """The newest generation that every rank can read; None when nothing is saved yet. There this
        incarnation's branch begins.

        DataError when there are generations and none can be read: a fresh start would throw them away.
        PeerLost when a later incarnation has begun, or somebody else goes on deleting what is there.
        """
        if self._rank == 0:
            self._begin()
        for _ in range(SURVEYS):
            record, troubles, collected = self._choose()
            if record is not None or not collected:
                break
        if record is None and collected:
            raise PeerLost(f"somebody deletes the generations in {self.root} while they are being read")
        if record is None and troubles:
            raise DataError(
                f"no checkpoint in {self.root} can be read: {'; '.join(troubles)}. Nothing was deleted. "
                f"Check the volume behind {self.root} and create the job again; to begin at step 0 instead, "
                "delete the gen-* folders there"
            )
        self._parent = record.generation if record else None
        if self._rank == 0:
            self._untold = Branch(self.incarnation, self._parent)
            self._tell()
        return record

    def _choose(self) -> tuple[Record | None, list[str], bool]:
        """One survey: the newest generation that can be read, the troubles with those that cannot, and
        whether one was deleted meanwhile: a replaced run may have committed once more, and collected.
        """
        line: list[Record] = []
        complaints: dict[Generation, str] = {}
        newest = 0
        if self._rank == 0:
            newest = storage.newest_incarnation(self.root)
            line, complaints = self._survey()
        line, complaints, newest = _of_rank_0((line, complaints, newest), self._group)
        if newest > self.incarnation:
            raise PeerLost(self._replaced_by(newest))
        self._spared.update(complaints)
        troubles = list(complaints.values())
        collected = False
        for record in line:
            trouble = self._fault(record)
            if not trouble:
                return record, troubles, collected
            if not _of_rank_0(storage.committed(self.root, record.generation), self._group):
                collected = True
                continue
            self._spared.add(record.generation)
            troubles.append(trouble)
            say(f"CHECKPOINT {record.generation.name} IS CORRUPT: {trouble}")
        return None, troubles, collected

    def _survey(self) -> tuple[list[Record], dict[Generation, str]]:
        """The lineage, and what is wrong with each record that cannot be read."""
        records, complaints = storage.records(self.root)
        for complaint in complaints.values():
            say(f"A COMMIT RECORD CANNOT BE READ: {complaint}")
        line = lineage(records, storage.branches(self.root))
        dead = sorted(one.generation for one in records if not line or one.generation > line[0].generation)
        if dead:
            names = ", ".join(one.name for one in dead)
            say(f"{names}: COMMITTED BY AN INCARNATION THAT HAD BEEN REPLACED, not restored from")
        return line, complaints

    def _begin(self) -> None:
        """Says that this incarnation begins, before it looks: who is replaced by it commits nothing after."""
        try:
            storage.begin(self.root, self.incarnation)
        except OSError as error:  # a full volume must not end the training
            self._complain(error)

    def _tell(self) -> None:
        """Says where this incarnation begins: before its first step, or else with each save until it can."""
        if self._untold is None:
            return
        try:
            storage.write_branch(self.root, self._untold)
        except OSError as error:
            self._complain(error)
        else:
            self._untold = None

    def _complain(self, error: OSError) -> None:
        say(f"{self.root} DOES NOT TAKE the beginning of incarnation {self.incarnation}: {error}")

    def load(self, state: dict[str, Any], record: Record) -> None:
        """Reads the chosen generation into `state`."""
        from convoy_workloads.runtime import snapshot  # noqa: PLC0415

        snapshot.load(state, self.root / record.generation.name, self._group)

    def _stage(self, state: dict[str, Any], step: int) -> Any:
        from convoy_workloads.runtime import snapshot  # noqa: PLC0415

        generation = Generation(self.incarnation, step)
        if self._flying is not None:
            if self.commits.overdue():
                self.commits.abandon()
            self.settle(LAG_SECONDS if self._flying != generation else DECISION_SECONDS)
            if self._flying == generation:
                return None
        began = time.monotonic()
        staged = snapshot.stage(state, self.root, generation, self._parent, self._group)
        self._flying = generation
        self._last = time.monotonic()
        self.stall_seconds = self._last - began
        return staged

    def _finish(self, staged: Any) -> None:
        from convoy_workloads.runtime import snapshot  # noqa: PLC0415

        self._tell()
        try:
            snapshot.write(staged)
            self.commits.prepare(
                staged.generation,
                staged.parent,
                seal=lambda: self._seal(staged),
                complete=lambda: snapshot.parts(staged) is not None,
            )
        except Exception as error:  # a full volume must not end the training
            say(f"CHECKPOINT {staged.generation.name} FAILED: {type(error).__name__}: {error}")
            self.commits.give_up(staged.generation)

    def _seal(self, staged: Any) -> None:
        """Writes the COMMIT record. PeerLost, and this rank leaves, when a later incarnation has begun.

        The agents refuse what they know to be replaced. Those of a job that was cut off as a whole know
        nothing; the volume may tell.
        """
        from convoy_workloads.runtime import snapshot  # noqa: PLC0415

        newest = storage.newest_incarnation(self.root)
        if newest > self.incarnation:
            self.commits.stale = True
            raise PeerLost(self._replaced_by(newest))
        snapshot.seal(staged)

    def _replaced_by(self, newest: int) -> str:
        return f"incarnation {newest} of this job has begun in {self.root}, this is {self.incarnation}"

    def _committed(self, generation: Generation) -> None:
        self._parent = generation
        if self._rank != 0:
            return
        try:
            self._collect(generation)
        except OSError as error:  # the next commit collects again
            say(f"{self.root} DOES NOT ANSWER: what is superseded is still there: {error}")

    def _collect(self, generation: Generation) -> None:
        """Deletes what is superseded by a committed generation."""
        records, unreadable = storage.records(self.root)
        self._spared.update(unreadable)
        branches = storage.branches(self.root)
        for old in doomed(storage.generations(self.root), records, generation, self._spared, branches):
            storage.remove(self.root, old)
        storage.remove_branches(self.root, generation.incarnation)

    def _fault(self, record: Record) -> str:
        """What is wrong with a generation, found by all ranks together."""
        folder = self.root / record.generation.name
        if self._group is None:
            return storage.fault(folder, record)
        import torch.distributed as dist  # noqa: PLC0415

        world = dist.get_world_size(self._group)
        found: list[Any] = [None] * world
        dist.all_gather_object(found, storage.fault(folder, record, self._rank, world), group=self._group)
        return next((trouble for trouble in found if trouble), "")


def open_checkpoints(place: Place, group: Any = None) -> Checkpointer | None:
    """The checkpoints of the job at `place`: in its nodes' memory, or in a folder; None without either. All
    ranks of `group` call it. DataError when this process may not write there.

    Nobody counts incarnations on a laptop: there it is one more than the folder has seen.
    """
    if place.in_memory:
        return MemoryCheckpoints(place, group)
    root = place.checkpoint_dir
    if root is None:
        return None
    storage.must_be_writable(root)
    incarnation = place.incarnation
    if not incarnation:
        incarnation = _of_rank_0(storage.newest_incarnation(root) + 1, group)
    return Checkpoints(root, incarnation, place.rank, place.checkpoint_seconds, group)


def _of_rank_0(value: Any, group: Any) -> Any:
    """What rank 0 has."""
    if group is None:
        return value
    import torch.distributed as dist  # noqa: PLC0415

    box = [value]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]
