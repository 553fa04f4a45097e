"""Methods that save a state: Convoy's, and those to compare with.

Each method returns the seconds for which the training stalls.
"""

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
"""Function that returns the state. It is called for each save, because some methods change the
dictionaries.
"""


class SaveMethod(Protocol):
    """A method that saves a state. All methods save the same state."""

    name: str

    def save(self, collect: Collect, step: int) -> float:
        """Save the state and wait until the next save may start.

        Return the seconds for which the training stalls.
        """
        ...

    def close(self) -> None:
        """Remove everything that the method left behind."""
        ...


def tensors(state: dict[str, Any]) -> list[torch.Tensor]:
    """Return all tensors of a model and its optimizer."""
    found = [value for _, value in sorted(state["model"].items())]
    for moments in state["optimizer"]["state"].values():
        found += [value for value in moments.values() if isinstance(value, torch.Tensor)]
    return found


def wait_until_idle(memory: Any) -> None:
    """Wait until Convoy accepts the next save. Raise TimeoutError after _IDLE_TIMEOUT_SECONDS."""
    deadline = time.monotonic() + _IDLE_TIMEOUT_SECONDS
    while memory.busy() or not memory.settle(60):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the previous save has not ended after {_IDLE_TIMEOUT_SECONDS:g} s")
        time.sleep(0.005)


class PlainCopy:
    """The lower bound for a save: one copy into memory that is already mapped."""

    name = COPY

    def __init__(self, state: dict[str, Any]) -> None:
        self._targets = [one.clone() for one in tensors(state)]

    def save(self, collect: Collect, step: int) -> float:
        """Copy all tensors once, and return the seconds."""
        sources = tensors(collect())
        began = time.perf_counter()
        for target, source in zip(self._targets, sources, strict=True):
            target.copy_(source)
        return time.perf_counter() - began

    def close(self) -> None:
        """Do nothing: the copy is freed with this object."""


class ConvoySave:
    """Convoy's full save in the node's memory."""

    name = OURS

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.committed = 0.0
        """Seconds from the start of the last save until the save was committed."""

    def save(self, collect: Collect, step: int) -> float:
        """Gather and save the state, as `job.checkpoint` does. The journal is measured in `steps.py`."""
        # A save that finds too little memory requests more and returns False, so try again. The stalls of all
        # attempts count.
        first_start, seconds = time.perf_counter(), 0.0
        for _ in range(3):
            began = time.perf_counter()
            saved = self._memory.start(collect(), step)
            seconds += time.perf_counter() - began
            wait_until_idle(self._memory)
            if saved:
                self.committed = time.perf_counter() - first_start
                return seconds
        raise RuntimeError("the node's memory did not accept the state in 3 attempts")

    def close(self) -> None:
        """Do nothing: the agent owns the saved generations."""


class DcpSave:
    """A save to files by torch.distributed.checkpoint."""

    def __init__(self, name: str, folder: Path, checkpointer: AsyncCheckpointerType | None) -> None:
        self.name = name
        self._folder = folder
        self._checkpointer = checkpointer

    def save(self, collect: Collect, step: int) -> float:
        """Save to a separate folder for each step, as the documentation of torch recommends."""
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
        """Do nothing: torch's save process ends with this process."""


class DlroverSave:
    """DLRover's flash checkpoint to memory: one copy into shared memory, which a saver process manages."""

    name = DLROVER

    def __init__(self, folder: Path, library: Path) -> None:
        # DLRover begins the names of its shared memory and sockets with the value of TORCHELASTIC_RUN_ID. A
        # unique value keeps the files of two runs apart.
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
        """Save with DLRover. Raise RuntimeError if DLRover has skipped the save, which it does without an
        error.
        """
        state = collect()
        began = time.perf_counter()
        self._checkpointer.save_checkpoint(step, state, storage_type=self._memory)
        seconds = time.perf_counter() - began
        if self._checkpointer._engine._cached_step != step:
            raise RuntimeError("DLRover skipped the save")
        return seconds

    def close(self) -> None:
        """Remove the shared memory and the saver process, which DLRover keeps after the trainer ends."""
        engine = self._checkpointer._engine
        engine._shm_handler.unlink()
        if engine.saver_proc is not None:
            engine.saver_proc.kill()
            engine.saver_proc.join()


class ResiliencySave:
    """NVIDIA's local checkpoint on a RAM disk. It is synchronous, because the asynchronous one needs CUDA."""

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
        """Save to a file with torch.save. NVIDIA's manager deletes the previous file."""
        # Skip the constructor: it accepts only tensors on a GPU, and its work is not needed on a CPU.
        given = self._kind.__new__(self._kind)
        given.state_dict, given._is_hollow = collect(), False
        began = time.perf_counter()
        self._manager.save(given, step, is_async=False)
        return time.perf_counter() - began

    def close(self) -> None:
        """Delete the files on the RAM disk."""
        shutil.rmtree(self._folder, ignore_errors=True)


def memory_of(folder: Path) -> Path:
    """Return a folder on the machine's RAM disk for the bench that has its files in `folder`."""
    return Path("/dev/shm") / f"{folder.parent.name}-files"


@contextlib.contextmanager
def other_methods(
    folder: Path, libraries: dict[str, str], missing: Callable[[str, str], None]
) -> Iterator[Sequence[SaveMethod]]:
    """Yield all save methods except Convoy's, ready for use. Call `missing` for each that does not work
    here.

    `libraries` maps a method's name to its library's folder, or to the reason why the library has no
    folder. Requires a process group.
    """
    methods: list[SaveMethod] = [
        DcpSave(SYNC, folder, None),
        DcpSave(THREAD, folder, AsyncCheckpointerType.THREAD),
        DcpSave(PROCESS, folder, AsyncCheckpointerType.PROCESS),
    ]
    for kind in (DlroverSave, ResiliencySave):
        found = libraries.get(kind.name, "not requested")
        if not Path(found).is_dir():
            missing(kind.name, found)
            continue
        try:
            methods.append(kind(folder, Path(found)))
        # A library may raise any error at its import or set-up, so report the error instead.
        except Exception as error:
            missing(kind.name, f"{type(error).__name__}: {error}")
    try:
        yield methods
    finally:
        for method in methods:
            method.close()
