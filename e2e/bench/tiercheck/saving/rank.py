"""The rank's program in `make bench-tiercheck`. It saves one state with every method in turn.

    python -m e2e.bench.tiercheck.saving.rank TASK

TASK is a `Task` as JSON. The first incarnation saves; later incarnations restore. The program prints
results as JSON lines.
"""

from __future__ import annotations

import contextlib
import json
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import convoy
from e2e.bench.tiercheck.saving import steps
from e2e.bench.tiercheck.saving.messages import Messages, profiled
from e2e.bench.tiercheck.saving.save_methods import (
    ConvoySave,
    PlainCopy,
    SaveMethod,
    other_methods,
    tensors,
    wait_until_idle,
)
from e2e.bench.tiercheck.saving.steps import WIDTH

LAST = 1_000_000
"""Step of the last save, which later incarnations restore."""
GAP = 100
"""Number of steps between two saves. It is too large for the journal, so each save is a full one."""
RESERVED = "memory made ready"
SAVING, COMMITTED = "a save by Convoy starts", "committed"
SPACE = "full saves are made"
"""Kind of the message after the last full save. At this moment the node's memory has full saves but no
journal.
"""


@dataclass(frozen=True)
class Task:
    """The measurements that a rank must make."""

    parameters: int
    rounds: int
    folder: str
    """Folder for files that save methods write."""
    libraries: dict[str, str] = field(default_factory=dict)
    """Folder of each library, or the reason why the library could not be installed, as in
    `save_methods.other_methods`.
    """
    lengths: Sequence[float] = ()
    """Lengths, in seconds, of the steps that are measured with and without saves."""
    parts: Sequence[str] = ()
    """Parts to measure: `methods`, `journal`, `restore`, `profile`."""

    def text(self) -> str:
        """Return the task as a command-line argument."""
        return json.dumps(asdict(self))


def model_of(parameters: int) -> torch.nn.Module:
    """Return a model of square linear layers with about `parameters` parameters."""
    layers = max(1, parameters // (WIDTH * WIDTH))
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))


def main(task: Task) -> None:
    """Make the measurements of a task: save, or restore."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    messages, folder = Messages(), Path(task.folder)
    with contextlib.ExitStack() as stack:
        methods: Sequence[SaveMethod] = ()
        if "methods" in task.parts:
            # torch's asynchronous saves need a process group, even for one rank. Create it before this
            # process joins the job, so that forked children do not inherit the job's connections and signal
            # handlers.
            dist.init_process_group("gloo", f"file://{folder / 'group'}", rank=0, world_size=1)
            methods = stack.enter_context(other_methods(folder, task.libraries, messages.missing))
        job = stack.enter_context(convoy.join())
        torch.manual_seed(0)
        model = model_of(task.parameters)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        if "profile" in task.parts:
            profile(job, messages, model, optimizer)
            return
        began = time.perf_counter()
        restored = job.restore(model=model, optimizer=optimizer)
        seconds = time.perf_counter() - began
        if "restore" in task.parts:
            if restored.generation is None:
                raise RuntimeError("the node's memory has no generation to restore")
            report_restore(job, messages, seconds)
            return
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        # The agent prepares the node's memory while the training runs, so measure how long that takes.
        began = time.perf_counter()
        wait_until_idle(job._checkpoints)
        messages.value(RESERVED, time.perf_counter() - began)
        messages.value(
            "bytes", float(sum(one.numel() * one.element_size() for one in tensors(job._state.collect())))
        )
        if methods:
            measure_saves(job, messages, task.rounds, methods)
        bench = steps.Steps(job, optimizer, messages)
        if "journal" in task.parts:
            bench.measure_journal(task.rounds)
        for length in task.lengths:
            bench.measure_steps(length, task.rounds)
        bench.wait_until_idle()
        ConvoySave(job._checkpoints).save(job._state.collect, LAST)


def profile(job: Any, messages: Messages, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Report what a restore uses, or, in the first incarnation, what several saves use."""

    def restore() -> Any:
        return job.restore(model=model, optimizer=optimizer)

    if job.incarnation > 1:
        profiled(messages, "a restore", restore, lambda: None)
        return
    restore()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    memory = job._checkpoints
    for number in range(4):
        wait_until_idle(memory)
        save = partial(memory.start, job._state.collect(), GAP * (number + 1))
        name = "a full save" if number else "the first full save"
        profiled(messages, name, save, partial(wait_until_idle, memory))


def measure_saves(job: Any, messages: Messages, rounds: int, methods: Sequence[SaveMethod]) -> None:
    """Save once with every method, then `rounds` times more. Each round starts with a different method."""
    ours = ConvoySave(job._checkpoints)
    turns: list[SaveMethod] = [PlainCopy(job._state.collect()), ours, *methods]
    failed: set[str] = set()
    for number in range(rounds + 1):
        at = number % len(turns)
        for method in [*turns[at:], *turns[:at]]:
            if method.name in failed:
                continue
            if method is ours:
                messages.value(SAVING, 0.0)
            try:
                seconds = method.save(job._state.collect, GAP * (number + 1))
            except Exception as error:
                if method in (turns[0], ours):
                    raise
                failed.add(method.name)
                messages.missing(method.name, f"{type(error).__name__}: {error}")
                continue
            messages.value(method.name if number else f"first {method.name}", seconds)
            if method is ours:
                messages.value(COMMITTED, ours.committed)
    messages.value(SPACE, 0.0)


def report_restore(job: Any, messages: Messages, seconds: float, copies: int = 3) -> None:
    """Report the seconds of a restore, and the seconds of a plain copy of the restored state."""
    messages.value("restore from memory", seconds)
    state = job._state.collect()
    began = time.perf_counter()
    copy = PlainCopy(state)
    messages.value("fresh copy at the restore", time.perf_counter() - began)
    messages.value(
        "copy at the restore", statistics.median(copy.save(lambda: state, 0) for _ in range(copies))
    )


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Task(**given))
