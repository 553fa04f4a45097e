"""torch.distributed.checkpoint on the memory of a job's nodes.

What `dcp.save` and `async_save` write is a generation like those of `job.checkpoint`: agents commit it, copy
it to other nodes, bring it to the job's store and give it back to the next incarnation. dcp plans who writes
and who reads which box of a tensor, so a load may want other boxes than were saved, on other ranks.

dcp's metadata is not stored: each shard says the names, boxes, shapes and types of what is in it, and the
reader puts dcp's `Metadata` together from all of them. Nothing that is stored is pickled (values.py).
"""

from __future__ import annotations

import io
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from convoy_workloads.runtime.checkpointer import DECISION_SECONDS
from convoy_workloads.runtime.errors import DataError
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.job import Job
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.tiers import values
from convoy_workloads.runtime.tiers.reading import ShardReader
from convoy_workloads.runtime.tiers.sizes import SPARE

SLOT_SECONDS = 320.0
"""For the save before to get its copies, or for the agents to give up what a rank of theirs has not saved."""
_POLL_SECONDS = 2.0


class NotSaved(RuntimeError):
    """Why no generation came of it. `dcp.save` has it in a CheckpointException, on every rank."""


class ConvoyWriter(StorageWriter):
    """Takes one generation: `dcp.save(state, storage_writer=ConvoyWriter(job, step))`.

    Every rank of the job makes one of the same step and saves with a group of all of them, in their order.
    `dcp.save` returns when the state is copied and may be changed; the agents go on from there (`settle`). It
    waits until the save before has its copies; with `job.due(step)` it finds that they are there.

    Tensors may be on any device, replicated or in boxes (DTensor, ShardedTensor). What is no tensor must have
    an exact form (values.py): numbers, texts, bytes, arrays, and lists, tuples and dicts of them.

    `async_save` works on a thread; its type PROCESS does not. `checkpoint_id` means nothing here.
    """

    def __init__(self, job: Job[Any], step: int, *, last: bool = False) -> None:
        """`step`: steps that the state has behind it, more than at the save before and than what this run
        goes on from. `last`: the job ends with it, so it goes to the job's store if there is one, as the last
        step of `job.steps` does unasked.

        DataError without an agent that keeps states in memory, and before a ConvoyReader was made. ValueError
        for a step that is not beyond what this run goes on from.
        """
        self._memory = job.memory
        self._saves = job.memory.planned
        if not job.saves_itself:
            raise DataError("convoy.dcp.ConvoyReader(job) comes before the first save")
        if step <= job.restored.step:
            raise ValueError(
                f"step {step} is not beyond step {job.restored.step}, which this run goes on from"
            )
        self._job = job
        self._step = step
        self._last = last or job.is_last_step(step)
        self._thread = threading.get_ident()

    def settle(self, seconds: float = DECISION_SECONDS) -> bool:
        """Waits until the newest save is committed, and copied to other nodes where copies are made. Whether
        it is committed. Leaving the job waits too.
        """
        return self._memory.settle(seconds)

    def reset(self, checkpoint_id: Any = None) -> None:
        """A writer belongs to one step."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """NotSaved when not all ranks of the job save together."""
        rank = kwargs.get("rank", self._job.rank)
        alone = rank != self._job.rank or not kwargs.get("use_collectives", True)
        if alone and self._job.world > 1:
            raise NotSaved(_TOGETHER)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Waits for a buffer with room for about this rank's share. NotSaved on all ranks when one has none.

        StepAbandoned when this very step was given up before, as a rank had failed in `write_data`: in this
        incarnation only a later one can be saved.
        """
        self._saves.check(self._step)
        with self._counting_stall():
            self._saves.done_reading()
            why = self._saves.ensure_capacity(_shard_bytes(plan, self._job.world))
        if why:
            raise NotSaved(f"rank {self._job.rank}: {why}")
        deadline = time.monotonic() + self._job.within_grace(SLOT_SECONDS)
        while True:
            with self._counting_stall():
                if self._saves.wait_free(_POLL_SECONDS):
                    return plan
            if time.monotonic() > deadline:
                raise NotSaved(f"rank {self._job.rank}: the save before is still being copied to other nodes")

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """As they are. NotSaved when they are not of all ranks of the job."""
        if len(plans) != self._job.world:
            raise NotSaved(_TOGETHER)
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Copies this rank's share into its buffer. UnsavableError names a value that has no exact form.

        When it fails on a rank, no other rank keeps its buffer for the generation.
        """
        try:
            return self._write(plan, planner)
        except BaseException:
            self._saves.abandon(self._step)
            raise

    def _write(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        tensors, texts = [], {}
        for item in plan.items:
            if item.type is WriteItemType.BYTE_IO:
                texts[item.index.fqn] = _text(planner, item)
            else:
                tensors.append(item)
        with self._counting_stall():
            copied = [planner.resolve_data(item) for item in tensors]
            why = self._saves.put(tensors, copied, texts, self._step, last=self._last)
        if why:
            raise NotSaved(f"rank {self._job.rank}: {why}")
        done: Future[list[WriteResult]] = Future()
        sizes = [len(texts.get(item.index.fqn, "")) or _bytes(item) for item in plan.items]
        written = zip(plan.items, sizes)  # noqa: B905 - `strict` came with Python 3.10
        done.set_result([WriteResult(item.index, size, None) for item, size in written])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Nothing: the agents decide whether the generation stands."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """No path or key names a generation."""
        return False

    def __getstate__(self) -> Any:
        raise TypeError("a ConvoyWriter writes into this process's memory: AsyncCheckpointerType.THREAD")

    def _counting_stall(self) -> AbstractContextManager[None]:
        """Counts what the training waits; `async_save` comes from another thread, beside it."""
        beside = threading.get_ident() != self._thread
        return nullcontext() if beside else self._job.saving()


class ConvoyReader(ShardReader):
    """What this incarnation goes on from, for `dcp.load(state, storage_reader=reader)`, once or more.

    ```python
    with ConvoyReader(job) as reader:
        if reader.generation is not None:
            dcp.load(state, storage_reader=reader)
    ```

    Every rank of the job makes one, once, before it saves: it agrees with the others on the newest generation
    whose shards can all be read, and fetches them; from then on the program saves by itself (ConvoyWriter).
    World size and sharding may be others than at the save. `job.steps` begins behind the generation.
    """

    def __init__(self, job: Job[Any]) -> None:
        """DataError without an agent that keeps states in memory, or when what to go on from was chosen
        before. PeerLost when the agents do not agree in time, StoreAway when they wait for the store.
        """
        self._saves = job.memory.planned
        record = job.choose()
        super().__init__(self._saves.shards)
        self._open = True
        self.generation: Generation | None = None if record is None else record.generation
        """None when nothing is saved: the job begins at step 0."""
        if record is not None and job.rank == 0:
            saver = f"saved by {record.world} ranks with torch {record.torch}"
            log_line(f"continues after step {record.generation.step} from {record.generation.name}, {saver}")

    @property
    def step(self) -> int:
        """Steps that the state has behind it; 0 when nothing is saved."""
        return self.generation.step if self.generation is not None else 0

    def close(self) -> None:
        """Gives the shards back; the first save does so too. PeerLost."""
        self._parts, self._values, self._open = {}, {}, False
        self._saves.done_reading()

    def __enter__(self) -> ConvoyReader:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.close()

    def value(self, name: str) -> io.BytesIO:
        """What is no tensor, as dcp's own planner reads it. The pickle is made here and now."""
        found = io.BytesIO()
        torch.save(values.loads(self._values[name]), found)
        found.seek(0)
        return found

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What was saved, in dcp's words. DataError when that is nothing, or the reader is closed."""
        if not self._open:
            raise DataError("the ConvoyReader is closed")
        if self.generation is None:
            raise DataError("nothing is saved: there is nothing to load when ConvoyReader.generation is None")
        return super().read_metadata(*args, **kwargs)


_TOGETHER = "all ranks of the job save together: without no_dist, with use_collectives, in a group of all"


def _text(planner: SavePlanner, item: WriteItem) -> str:
    if (
        not isinstance(planner, DefaultSavePlanner)
        or type(planner).transform_object is not DefaultSavePlanner.transform_object
    ):
        raise values.UnsavableError(
            f"{item.index.fqn}: {type(planner).__qualname__} makes bytes of what is no tensor; only a "
            "DefaultSavePlanner with its own transform_object leaves it to Convoy"
        )
    try:
        return values.dumps(planner.lookup_object(item.index))
    except values.UnsavableError as error:
        raise values.UnsavableError(f"{item.index.fqn}: {error}") from error


def _shard_bytes(plan: SavePlan, world: int) -> int:
    """Bytes of a rank's shard: what is replicated is dealt out, what is in boxes stays with its rank."""
    own = sum(_bytes(item) for item in plan.items if item.type is WriteItemType.SHARD)
    shared = sum(_bytes(item) for item in plan.items if item.type is WriteItemType.TENSOR)
    return own + -(-shared // world) + SPARE


def _bytes(item: WriteItem) -> int:
    """Of the box that is written."""
    if item.tensor_data is None:
        return 0
    return item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize
