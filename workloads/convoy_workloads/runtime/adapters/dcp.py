"""Storage for torch.distributed.checkpoint (dcp) in the memory of a job's nodes.

`dcp.save` and `async_save` write generations like those of `job.checkpoint`. Agents commit them, copy them
to other nodes, upload them to the job's store and return them to the next incarnation. A box is a
rectangular part of a tensor. dcp plans which rank writes each box, and which rank reads it. So a load may
divide the tensors into other boxes than the save did.

dcp's metadata is not stored. Each shard lists the names, boxes, shapes and types of its content, and the
reader builds dcp's `Metadata` from all shards. No stored data is pickled (values.py).
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

FREE_BUFFER_SECONDS = 320.0
"""Maximum number of seconds that `dcp.save` waits for a buffer that it may write to.

A buffer becomes free when the previous save has been copied to other nodes. If a rank did not finish the
previous save, the agents must first abandon that save.
"""
_POLL_SECONDS = 2.0


class NotSaved(RuntimeError):
    """Raised if no generation was saved. The message gives the reason.

    `dcp.save` wraps this error in a CheckpointException on every rank.
    """


class ConvoyWriter(StorageWriter):
    """Saves one generation: `dcp.save(state, storage_writer=ConvoyWriter(job, step))`.

    Every rank of the job creates a writer for the same step. All ranks save in one process group, in rank
    order. `dcp.save` returns when the state is copied; after that the state may change. The agents commit
    the generation in the background (see `settle`). A save waits until the previous save has been copied to
    other nodes. To avoid that wait, save only if `job.due(step)` is True.

    Tensors may be on any device. They may be replicated, or divided among the ranks (DTensor,
    ShardedTensor). All other values must be of types that values.py encodes exactly: numbers, texts, bytes,
    arrays, and lists, tuples and dicts of them.

    `async_save` works with AsyncCheckpointerType.THREAD, but not with PROCESS. `checkpoint_id` is ignored.
    """

    def __init__(self, job: Job[Any], step: int, *, last: bool = False) -> None:
        """Prepare the save of the state after `step`.

        `step`: number of steps that the state contains. It must exceed the step of the previous save and
        the step that the run resumed from.

        `last`: True if the job ends with this state. The agents then also upload the state to the job's
        store, if there is one. At the last step of `job.steps` this argument is not needed.

        Raises DataError if no agent keeps states in memory, or if no ConvoyReader was created before.
        Raises ValueError if `step` does not exceed the restored step.
        """
        self._memory = job.memory
        self._saves = job.memory.planned
        if not job.program_saves:
            raise DataError("create a convoy.dcp.ConvoyReader(job) before the first save")
        if step <= job.restored.step:
            raise ValueError(
                f"step {step} is not beyond step {job.restored.step}, which this run resumed from"
            )
        self._job = job
        self._step = step
        self._last = last or job.is_last_step(step)
        self._thread = threading.get_ident()

    def settle(self, seconds: float = DECISION_SECONDS) -> bool:
        """Wait until the newest save is committed, and copied to other nodes if the job makes copies.

        Return True if the save is committed. The end of the job's `with` block waits in the same way.
        """
        return self._memory.settle(seconds)

    def reset(self, checkpoint_id: Any = None) -> None:
        """Do nothing, because a writer saves only one step."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Raise NotSaved unless all ranks of the job save together."""
        rank = kwargs.get("rank", self._job.rank)
        alone = rank != self._job.rank or not kwargs.get("use_collectives", True)
        if alone and self._job.world > 1:
            raise NotSaved(_TOGETHER)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Wait for a free buffer that is large enough for this rank's shard, whose size is estimated.

        If a rank gets no buffer, all ranks raise NotSaved. Raises StepAbandoned if this step was abandoned
        because a rank failed in `write_data`. This incarnation can then save only later steps.
        """
        self._saves.check(self._step)
        with self._counting_stall():
            self._saves.done_reading()
            why = self._saves.ensure_capacity(_shard_bytes(plan, self._job.world))
        if why:
            raise NotSaved(f"rank {self._job.rank}: {why}")
        deadline = time.monotonic() + self._job.limit_to_grace(FREE_BUFFER_SECONDS)
        while True:
            with self._counting_stall():
                if self._saves.wait_free(_POLL_SECONDS):
                    return plan
            if time.monotonic() > deadline:
                raise NotSaved(
                    f"rank {self._job.rank}: the previous save is still being copied to other nodes"
                )

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return the plans unchanged. Raises NotSaved if they do not come from all ranks of the job."""
        if len(plans) != self._job.world:
            raise NotSaved(_TOGETHER)
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Copy this rank's part of the state into its buffer.

        Raises UnsavableError if a value cannot be encoded exactly; the message names the value. If one rank
        fails here, every rank frees its buffer for this step.
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
        """Do nothing, because the agents commit the generation."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Return False: no path or key identifies a generation."""
        return False

    def __getstate__(self) -> Any:
        raise TypeError("a ConvoyWriter writes into this process's memory: use AsyncCheckpointerType.THREAD")

    def _counting_stall(self) -> AbstractContextManager[None]:
        """Return a context whose duration counts as a stall of the training.

        In the thread of an `async_save` the duration does not count, because the training continues
        meanwhile.
        """
        beside = threading.get_ident() != self._thread
        return nullcontext() if beside else self._job.saving()


class ConvoyReader(ShardReader):
    """Reads the state that this incarnation resumes from. The state may be loaded repeatedly.

    ```python
    with ConvoyReader(job) as reader:
        if reader.generation is not None:
            dcp.load(state, storage_reader=reader)
    ```

    Every rank of the job creates one reader, before the first save. The ranks agree on the newest
    generation whose shards can all be read, and fetch the shards. After that, the program itself saves its
    state with ConvoyWriter. World size and sharding may differ from those of the save. `job.steps`
    continues after the step of the generation.
    """

    def __init__(self, job: Job[Any]) -> None:
        """Choose the generation to resume from and fetch its shards.

        Raises DataError if no agent keeps states in memory, or if the job has already chosen a generation.
        Raises PeerLost if the agents do not agree in time, and StoreAway if the agents wait for the store.
        """
        self._saves = job.memory.planned
        record = job.choose()
        super().__init__(self._saves.shards)
        self._open = True
        self.generation: Generation | None = None if record is None else record.generation
        """The generation to resume from; None if nothing is saved, so that the job starts at step 0."""
        if record is not None and job.rank == 0:
            saver = f"saved by {record.world} ranks with torch {record.torch}"
            log_line(f"continues after step {record.generation.step} from {record.generation.name}, {saver}")

    @property
    def step(self) -> int:
        """Number of steps that the state contains; 0 if nothing is saved."""
        return self.generation.step if self.generation is not None else 0

    def close(self) -> None:
        """Release the shards. Afterwards the reader cannot load. The first save also releases them. Raises
        PeerLost if the agent does not respond.
        """
        self._parts, self._values, self._open = {}, {}, False
        self._saves.done_reading()

    def __enter__(self) -> ConvoyReader:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.close()

    def value(self, name: str) -> io.BytesIO:
        """Return a value that is not a tensor, pickled for dcp's own load planner.

        The shard contains the value in its JSON form (values.py). Only this method pickles it.
        """
        found = io.BytesIO()
        torch.save(values.loads(self._values[name]), found)
        found.seek(0)
        return found

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the description of the saved entries as dcp's Metadata.

        Raises DataError if nothing is saved or the reader is closed.
        """
        if not self._open:
            raise DataError("the ConvoyReader is closed")
        if self.generation is None:
            raise DataError("nothing is saved: do not load when ConvoyReader.generation is None")
        return super().read_metadata(*args, **kwargs)


_TOGETHER = (
    "all ranks of the job save together: without no_dist, with use_collectives, in a group of all ranks"
)


def _text(planner: SavePlanner, item: WriteItem) -> str:
    if (
        not isinstance(planner, DefaultSavePlanner)
        or type(planner).transform_object is not DefaultSavePlanner.transform_object
    ):
        raise values.UnsavableError(
            f"{item.index.fqn}: {type(planner).__qualname__} encodes a value that is not a tensor; only a "
            "DefaultSavePlanner with its own transform_object leaves that to Convoy"
        )
    try:
        return values.dumps(planner.lookup_object(item.index))
    except values.UnsavableError as error:
        raise values.UnsavableError(f"{item.index.fqn}: {error}") from error


def _shard_bytes(plan: SavePlan, world: int) -> int:
    """Return the size of a rank's shard in bytes, estimated from dcp's local plan.

    Replicated tensors are divided among the ranks. Each rank writes its own boxes of sharded tensors.
    """
    own = sum(_bytes(item) for item in plan.items if item.type is WriteItemType.SHARD)
    shared = sum(_bytes(item) for item in plan.items if item.type is WriteItemType.TENSOR)
    return own + -(-shared // world) + SPARE


def _bytes(item: WriteItem) -> int:
    """Return the size in bytes of the box that `item` writes; 0 for a value that is not a tensor."""
    if item.tensor_data is None:
        return 0
    return item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize
