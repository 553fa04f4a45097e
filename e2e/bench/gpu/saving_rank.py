"""The rank's program of the part `saving`: saves a state on a GPU with every method in turn. A second
incarnation restores.

    python -m e2e.bench.gpu.saving_rank TASK

TASK is a `Task` as JSON. The program prints results as JSON lines.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import convoy
from convoy_workloads.runtime.exactness import fingerprint
from convoy_workloads.runtime.folder import snapshot
from convoy_workloads.runtime.generation import Generation
from e2e.bench.tiercheck.saving.messages import Messages
from e2e.bench.tiercheck.saving.rank import GAP, LAST, model_of
from e2e.bench.tiercheck.saving.save_methods import ConvoySave, tensors, wait_until_idle

BYTES = "bytes of the state"
OURS = "job.checkpoint to the node's memory, stall"
FOLDER = "job.checkpoint to a folder, stall"
PINNED = "a copy of all tensors to pinned memory"
PAGEABLE = "a copy of all tensors to warm memory that is not pinned"
PLAIN = "torch.save to a RAM disk"
METHODS = (OURS, FOLDER, PINNED, PAGEABLE, PLAIN)
DIFFERENT = "a state on the GPU that is restored from the node's memory with other bits"
JOURNAL_STEPS = 30


@dataclass(frozen=True)
class Task:
    """The measurements that a rank makes."""

    parameters: int
    rounds: int
    folder: str
    """Folder for files."""
    restore: bool = False

    def text(self, restore: bool) -> str:
        """Return the task as a command-line argument."""
        return json.dumps({**asdict(self), "restore": restore})


def main(task: Task) -> None:
    """Make the measurements."""
    warnings.simplefilter("ignore")
    messages, known = Messages(), Path(task.folder) / "bits"
    with convoy.join() as job:
        torch.manual_seed(0)
        model = model_of(task.parameters).to(job.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        began = time.perf_counter()
        restored = job.restore(model=model, optimizer=optimizer)
        _synchronize()
        if task.restore:
            messages.value("job.restore from the node's memory", time.perf_counter() - began)
            same = restored.generation is not None and fingerprint(model, optimizer) == known.read_text()
            messages.value(DIFFERENT, float(not same))
            return
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        memory: Any = job._checkpoints
        began = time.perf_counter()
        wait_until_idle(memory)
        messages.value("the node's memory is made ready, beside the training", time.perf_counter() - began)
        collect = job._state.collect
        states = tensors(collect())
        messages.value(BYTES, float(sum(one.numel() * one.element_size() for one in states)))
        _measure_saves(messages, task, memory, collect)
        _measure_journal(messages, memory, optimizer, collect)
        _synchronize()
        known.write_text(fingerprint(model, optimizer))


def _measure_saves(
    messages: Messages, task: Task, memory: Any, collect: Callable[[], dict[str, Any]]
) -> None:
    """Save once with every method, then `rounds` times more, in turns."""
    ours, root = ConvoySave(memory), Path(task.folder)
    states = tensors(collect())
    cuda = states[0].is_cuda
    pinned = [torch.empty_like(one, device="cpu", pin_memory=cuda) for one in states]
    warm = [torch.zeros_like(one, device="cpu") for one in states]
    file = Path("/dev/shm") / f"{root.name}-plain"
    methods: dict[str, Callable[[int], float]] = {
        OURS: lambda number: ours.save(collect, GAP * number),
        FOLDER: _timed(lambda number: snapshot.stage(collect(), root / "saved", Generation(1, number))),
        PINNED: _timed(lambda number: _copy(pinned, tensors(collect()))),
        PAGEABLE: _timed(lambda number: _copy(warm, tensors(collect()))),
        PLAIN: _timed(lambda number: torch.save(collect(), file)),
    }
    try:
        for number in range(task.rounds + 1):
            names = [*METHODS[number % len(METHODS) :], *METHODS[: number % len(METHODS)]]
            for name in names:
                _synchronize()
                seconds = methods[name](number + 1)
                messages.value(name if number else f"first: {name}", seconds)
    finally:
        file.unlink(missing_ok=True)


def _measure_journal(messages: Messages, memory: Any, optimizer: Any, collect: Any) -> None:
    """Save after each of several steps. The saves after a full save may be segments of the journal. The last
    save that is committed has the last state.
    """
    segments = 0
    for number in range(JOURNAL_STEPS):
        writes = memory._journal_saves.writing
        _synchronize()
        began = time.perf_counter()
        optimizer.step()
        _synchronize()
        messages.value(f"optimizer step{', journalled' if writes else ''}", time.perf_counter() - began)
        began = time.perf_counter()
        saved = memory.start(collect(), LAST + number)
        seconds = time.perf_counter() - began
        wait_until_idle(memory)
        if saved and memory._save.written.extends is not None:
            segments += 1
            messages.value("save by the journal, stall", seconds)
        if segments >= 5:
            return
    if not segments:
        why = memory._journal_saves._journal.reason or "a full save is expected to be restored sooner"
        messages.missing("save by the journal, stall", why)


def _timed(function: Callable[[int], object]) -> Callable[[int], float]:
    def call(number: int) -> float:
        began = time.perf_counter()
        function(number)
        _synchronize()
        return time.perf_counter() - began

    return call


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, non_blocking=True)


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
