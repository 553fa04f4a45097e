"""Ways to save a state: Convoy's, and what a program can use instead. Each says for how long it stalls."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save

from e2e.bench.tiercheck.saving.libraries import DLROVER, RESILIENCY

COPY, OURS = "copy", "save in memory"
SYNC, THREAD, PROCESS = "dcp sync", "dcp thread", "dcp process"
_IDLE_TIMEOUT_SECONDS = 120.0


Collect = Callable[[], dict[str, Any]]
"""Gathers the state, anew for each save: some ways write into the dictionaries."""


class SaveMethod(Protocol):
    """One of them. All save the same state."""

    name: str

    def save(self, collect: Collect, step: int) -> float:
        """Seconds for which the training waits. Returns when the next save may begin."""
        ...

    def close(self) -> None:
        """Leaves nothing behind."""
        ...


def tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    """All tensors of a model and its optimizer."""
    found = [value for _, value in sorted(state["model"].items())]
    for moments in state["optimizer"]["state"].values():
        found += [value for value in moments.values() if isinstance(value, torch.Tensor)]
    return found


def wait_until_idle(memory: Any) -> None:
    """Until Convoy's next save may begin. TimeoutError."""
    deadline = time.monotonic() + _IDLE_TIMEOUT_SECONDS
    while memory.busy() or not memory.settle(60):
        if time.monotonic() > deadline:
            raise TimeoutError("the save before does not end")
        time.sleep(0.005)


class PlainCopy:
    """The lower bound: one copy into memory that was touched before."""

    name = COPY

    def __init__(self, state: dict[str, Any]) -> None:
        self._targets = [one.clone() for one in tensors(state)]

    def save(self, collect: Collect, step: int) -> float:
        """Once over all tensors."""
        sources = tensors(collect())
        began = time.perf_counter()
        for target, source in zip(self._targets, sources, strict=True):
            target.copy_(source)
        return time.perf_counter() - began

    def close(self) -> None:
        """The memory goes with the object."""


class ConvoySave:
    """A full save in the node's memory."""

    name = OURS

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.committed = 0.0
        """Seconds from the beginning of the last save until it was committed."""

    def save(self, collect: Collect, step: int) -> float:
        """With the gathering, which `job.checkpoint` does; the journal is for `steps.py`."""
        # A save that finds too little memory asks for more and says so; what all of them stall counts.
        first_start, seconds = time.perf_counter(), 0.0
        for _ in range(3):
            began = time.perf_counter()
            saved = self._memory.start(collect(), step)
            seconds += time.perf_counter() - began
            wait_until_idle(self._memory)
            if saved:
                self.committed = time.perf_counter() - first_start
                return seconds
        raise RuntimeError("the node's memory does not take the state")

    def close(self) -> None:
        """The agent keeps what was saved."""


class DcpSave:
    """torch.distributed.checkpoint to files."""

    def __init__(self, name: str, folder: Path, checkpointer: AsyncCheckpointerType | None) -> None:
        self.name = name
        self._folder = folder
        self._checkpointer = checkpointer

    def save(self, collect: Collect, step: int) -> float:
        """Into a folder of its own, as its documentation has it."""
        state = collect()
        target = self._folder / f"{self.name.replace(' ', '-')}-{step}"
        began = time.perf_counter()
        if self._checkpointer is None:
            save(state, checkpoint_id=target)
            seconds = time.perf_counter() - began
        else:
            future: Any = async_save(state, checkpoint_id=target, async_checkpointer_type=self._checkpointer)
            seconds = time.perf_counter() - began
            done: Callable[[], Any] = getattr(future, "upload_completion", future).result
            done()
        shutil.rmtree(target)
        return seconds

    def close(self) -> None:
        """Its process ends with this one."""


class DlroverSave:
    """Its flash checkpoint to memory: one copy into shared memory, which a saver process looks after."""

    name = DLROVER

    def __init__(self, folder: Path, library: Path) -> None:
        # Names of its shared memory and sockets begin with this; beside jobs of others it has its own.
        os.environ["TORCHELASTIC_RUN_ID"] = folder.parent.name
        os.environ["DLROVER_LOG_LEVEL"] = "ERROR"
        sys.path.append(str(library))
        from dlrover.trainer.torch.flash_checkpoint.checkpointer import (  # type: ignore[import-not-found]  # noqa: PLC0415
            StorageType,
        )
        from dlrover.trainer.torch.flash_checkpoint.ddp import (  # type: ignore[import-not-found]  # noqa: PLC0415
            DdpCheckpointer,
        )

        self._checkpointer = DdpCheckpointer(str(folder / "dlrover"))
        self._memory = StorageType.MEMORY

    def save(self, collect: Collect, step: int) -> float:
        """RuntimeError when it has skipped the save, of which it says nothing by itself."""
        state = collect()
        began = time.perf_counter()
        self._checkpointer.save_checkpoint(step, state, storage_type=self._memory)
        seconds = time.perf_counter() - began
        if self._checkpointer._engine._cached_step != step:
            raise RuntimeError("the save was skipped")
        return seconds

    def close(self) -> None:
        """Its memory and its process outlive the trainer by design."""
        engine = self._checkpointer._engine
        engine._shm_handler.unlink()
        if engine.saver_proc is not None:
            engine.saver_proc.kill()
            engine.saver_proc.join()


class ResiliencySave:
    """Its local checkpoint on a RAM disk, synchronous: the asynchronous one needs CUDA."""

    name = RESILIENCY

    def __init__(self, folder: Path, library: Path) -> None:
        sys.path.append(str(library))
        from nvidia_resiliency_ext.checkpointing.local import (  # type: ignore[import-not-found]  # noqa: PLC0415
            basic_state_dict,
        )
        from nvidia_resiliency_ext.checkpointing.local.ckpt_managers import (  # type: ignore[import-not-found]  # noqa: PLC0415
            local_manager,
        )

        self._kind = basic_state_dict.BasicTensorAwareStateDict
        self._folder = memory_of(folder)
        self._manager = local_manager.LocalCheckpointManager(self._folder)

    def save(self, collect: Collect, step: int) -> float:
        """A file of torch.save; the one before is deleted."""
        # Its constructor takes tensors on a GPU alone; on a CPU there is nothing else for it to do.
        given = self._kind.__new__(self._kind)
        given.state_dict, given._is_hollow = collect(), False
        began = time.perf_counter()
        self._manager.save(given, step, is_async=False)
        return time.perf_counter() - began

    def close(self) -> None:
        """The RAM disk is given back."""
        shutil.rmtree(self._folder, ignore_errors=True)


def memory_of(folder: Path) -> Path:
    """A folder on the machine's RAM disk for a bench whose files are in `folder`."""
    return Path("/dev/shm") / f"{folder.parent.name}-files"


@contextlib.contextmanager
def other_methods(
    folder: Path, libraries: dict[str, str], missing: Callable[[str, str], None]
) -> Iterator[Sequence[SaveMethod]]:
    """All but Convoy's, ready. Those that cannot be used here are told of. Wants a process group.

    `libraries`: by name, the folder to import each from; or, where that is not a folder, why there is none.
    """
    methods: list[SaveMethod] = [
        DcpSave(SYNC, folder, None),
        DcpSave(THREAD, folder, AsyncCheckpointerType.THREAD),
        DcpSave(PROCESS, folder, AsyncCheckpointerType.PROCESS),
    ]
    for kind in (DlroverSave, ResiliencySave):
        found = libraries.get(kind.name, "not asked for")
        if not Path(found).is_dir():
            missing(kind.name, found)
            continue
        try:
            methods.append(kind(folder, Path(found)))
        except Exception as error:  # whatever its import or its set-up runs into here
            missing(kind.name, f"{type(error).__name__}: {error}")
    try:
        yield methods
    finally:
        for method in methods:
            method.close()
