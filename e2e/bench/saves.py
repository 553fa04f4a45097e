"""A rank's program for `make bench-tiercheck`: the same state saved in every way, in turns; JSON lines out.

    python -m e2e.bench.saves PARAMETERS ROUNDS FOLDER STEP_SECONDS...

As incarnation 1 it saves; as a later one it restores.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save

import convoy

WIDTH = 1024


def tell(kind: str, seconds: float) -> None:
    """One measurement."""
    print(json.dumps({"kind": kind, "seconds": seconds}), flush=True)


def model_of(parameters: int) -> torch.nn.Module:
    """Square layers with so many parameters in all, about."""
    layers = max(1, parameters // (WIDTH * WIDTH))
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))


def main(parameters: int, rounds: int, folder: Path, lengths: list[float]) -> None:
    """Saves, or restores and ends."""
    warnings.simplefilter("ignore")
    with convoy.join() as job:
        torch.manual_seed(0)
        model = model_of(parameters)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        began = time.perf_counter()
        restored = job.restore(model=model, optimizer=optimizer)
        if restored.generation is not None:
            tell("restore from memory", time.perf_counter() - began)
            copies(job)
            return
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        saves(job, rounds, folder)
        journals(job, optimizer, rounds)
        slows(job, optimizer, lengths)


def tensors(job: Any) -> list[torch.Tensor]:
    """All tensors of the state."""
    state = job._state.collect()
    found = [value for _, value in sorted(state["model"].items())]
    for moments in state["optimizer"]["state"].values():
        found += [value for value in moments.values() if isinstance(value, torch.Tensor)]
    return found


def copies(job: Any, times: int = 3) -> None:
    """What no save and no restore can be faster than: one copy into memory that was touched before."""
    sources = tensors(job)
    targets = [torch.empty_like(one).zero_() for one in sources]
    for _ in range(times):
        began = time.perf_counter()
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        tell("copy", time.perf_counter() - began)


def saves(job: Any, rounds: int, folder: Path) -> None:
    """Every way, `rounds` times, in turns."""
    memory = job._checkpoints
    # Its asynchronous saves want one, of a single rank too.
    torch.distributed.init_process_group("gloo", f"file://{folder / 'group'}", rank=0, world_size=1)
    sources = tensors(job)
    targets = [torch.empty_like(one).zero_() for one in sources]
    tell("bytes", float(sum(one.numel() * one.element_size() for one in sources)))
    # Its memory is made ready beside the training.
    deadline = time.monotonic() + 120
    while memory.busy() and time.monotonic() < deadline:
        time.sleep(0.05)
    for number in range(rounds):
        began = time.perf_counter()
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        tell("copy", time.perf_counter() - began)
        save_in_memory(job, memory, number + 1)
        if number < max(2, rounds // 2):
            for kind, way in (("sync", dcp_sync), ("thread", dcp_thread), ("process", dcp_process)):
                way(kind, job._state.collect(), folder / f"{kind}-{number}")
                shutil.rmtree(folder / f"{kind}-{number}", ignore_errors=True)


def save_in_memory(job: Any, memory: Any, step: int) -> None:
    """Ours: until the training may go on; then until the next save may begin."""
    for _ in range(3):
        began = time.perf_counter()
        saved = memory.start(job._state.collect(), step)
        seconds = time.perf_counter() - began
        wait(memory)
        if saved:
            tell("save in memory" if step > 1 else "first save in memory", seconds)
            tell("committed", time.perf_counter() - began)
            return


def wait(memory: Any) -> None:
    """Until the next save may begin."""
    deadline = time.monotonic() + 120
    while (memory.busy() or not memory.settle(60)) and time.monotonic() < deadline:
        time.sleep(0.005)


def journals(job: Any, optimizer: Any, rounds: int) -> None:
    """Saves after every step: what the step takes when its gradients are written, and the save then."""
    memory, first = job._checkpoints, 1000
    told = 0
    for step in range(first, first + 20 * rounds):
        written = memory._journalling.writing
        began = time.perf_counter()
        optimizer.step()
        stepped = time.perf_counter() - began
        tell("step with its gradients written" if written else "step", stepped)
        began = time.perf_counter()
        saved = memory.start(job._state.collect(), step)
        seconds = time.perf_counter() - began
        wait(memory)
        save = memory._flight.written
        if saved and save.extends is not None:
            told += 1
            tell("segment", seconds)
            tell("segment bytes", float(save.length))
        elif saved:
            tell("full save between segments", seconds)
            tell("full save bytes", float(save.length))
        if told >= rounds:
            return


def slows(job: Any, optimizer: Any, lengths: list[float], times: int = 3, steps: int = 4) -> None:
    """Steps of so many seconds, with a save after each and without, in turns."""
    memory, number = job._checkpoints, 100_000
    one, other = torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    began = time.perf_counter()
    for _ in range(50):
        one @ other
    each = (time.perf_counter() - began) / 50
    for length in lengths:
        for turn in range(2 * times):
            saving = bool(turn % 2)
            wait(memory)
            began = time.perf_counter()
            for _ in range(steps):
                number += 1
                for _ in range(max(1, int(length / each))):
                    one @ other
                optimizer.step()
                if saving and not memory.busy():
                    memory.start(job._state.collect(), number)
            kind = "with a save after each" if saving else "without saves"
            tell(f"steps of {length:g} s {kind}", (time.perf_counter() - began) / steps)


def dcp_sync(kind: str, state: Any, folder: Path) -> None:
    """torch.distributed.checkpoint, waited for."""
    began = time.perf_counter()
    save(state, checkpoint_id=folder)
    tell(f"dcp {kind}", time.perf_counter() - began)


def _dcp_async(kind: str, state: Any, folder: Path, how: AsyncCheckpointerType) -> None:
    began = time.perf_counter()
    future: Any = async_save(state, checkpoint_id=folder, async_checkpointer_type=how)
    tell(f"dcp {kind}", time.perf_counter() - began)
    wait: Callable[[], Any] = getattr(future, "upload_completion", future).result
    wait()


def dcp_thread(kind: str, state: Any, folder: Path) -> None:
    """Its asynchronous save on a thread."""
    _dcp_async(kind, state, folder, AsyncCheckpointerType.THREAD)


def dcp_process(kind: str, state: Any, folder: Path) -> None:
    """Its asynchronous save in a process."""
    _dcp_async(kind, state, folder, AsyncCheckpointerType.PROCESS)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), [float(one) for one in sys.argv[4:]])
