"""A rank's program for `make bench-tiercheck`: the same state saved in every way, in turns; JSON lines out.

    python -m e2e.bench.tiercheck.saving.rank TASK

TASK is a `Task` as JSON. In a first incarnation it saves; in a later one it restores.
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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import convoy
from e2e.bench.tiercheck.saving import steps
from e2e.bench.tiercheck.saving.messages import Messages
from e2e.bench.tiercheck.saving.steps import WIDTH
from e2e.bench.tiercheck.saving.save_methods import Copy, Ours, Way, others, quiet, tensors

LAST = 1_000_000
"""Step of the save that is restored."""
GAP = 100
"""Steps between two saves that are too many for a journal of them."""
RESERVED = "memory made ready"
SPACE = "full saves are made"
"""Told when the node's memory holds full saves alone."""


@dataclass(frozen=True)
class Task:
    """The measurements that the program takes."""

    parameters: int
    rounds: int
    folder: str
    """For files."""
    libraries: dict[str, str] = field(default_factory=dict)
    """As `ways.others` has them."""
    lengths: Sequence[float] = ()
    """Lengths in seconds of the steps beside which saves are made."""
    parts: Sequence[str] = ()
    """Parts to measure: ways, journal and restore."""

    def text(self) -> str:
        """As an argument."""
        return json.dumps(asdict(self))


def model_of(parameters: int) -> torch.nn.Module:
    """Square layers with so many parameters in all, about."""
    layers = max(1, parameters // (WIDTH * WIDTH))
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))


def main(task: Task) -> None:
    """Saves, or restores, and ends."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    say, folder = Messages(), Path(task.folder)
    with contextlib.ExitStack() as stack:
        ways: Sequence[Way] = ()
        if "ways" in task.parts:
            # torch's asynchronous saves want a group, of a single rank too. All before this becomes a job's
            # rank: what is forked is to inherit neither its connections nor its signals.
            dist.init_process_group("gloo", f"file://{folder / 'group'}", rank=0, world_size=1)
            ways = stack.enter_context(others(folder, task.libraries, say.missing))
        job = stack.enter_context(convoy.join())
        torch.manual_seed(0)
        model = model_of(task.parameters)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        began = time.perf_counter()
        restored = job.restore(model=model, optimizer=optimizer)
        seconds = time.perf_counter() - began
        if "restore" in task.parts:
            if restored.generation is None:
                raise RuntimeError("there is nothing to restore")
            restores(job, say, seconds)
            return
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        # The node's memory is made ready beside the training.
        began = time.perf_counter()
        quiet(job._checkpoints)
        say.value(RESERVED, time.perf_counter() - began)
        say.value(
            "bytes", float(sum(one.numel() * one.element_size() for one in tensors(job._state.collect())))
        )
        if ways:
            in_turns(job, say, task.rounds, ways)
        bench = steps.Steps(job, optimizer, say)
        if "journal" in task.parts:
            bench.journals(task.rounds)
        for length in task.lengths:
            bench.slowed(length, task.rounds)
        bench.calm()
        Ours(job._checkpoints).save(job._state.collect, LAST)


def in_turns(job: Any, say: Messages, rounds: int, ways: Sequence[Way]) -> None:
    """Every way `rounds` times, after a first save of each; who begins a round changes."""
    ours = Ours(job._checkpoints)
    turns: list[Way] = [Copy(job._state.collect()), ours, *ways]
    gone: set[str] = set()
    for number in range(rounds + 1):
        at = number % len(turns)
        for way in [*turns[at:], *turns[:at]]:
            if way.name in gone:
                continue
            try:
                seconds = way.save(job._state.collect, GAP * (number + 1))
            except Exception as error:
                if way in (turns[0], ours):
                    raise
                gone.add(way.name)
                say.missing(way.name, f"{type(error).__name__}: {error}")
                continue
            say.value(way.name if number else f"first {way.name}", seconds)
            if way is ours:
                say.value("committed", ours.committed)
    say.value(SPACE, 0.0)


def restores(job: Any, say: Messages, seconds: float, copies: int = 3) -> None:
    """Report the time of a restore, beside copies of the restored state."""
    say.value("restore from memory", seconds)
    state = job._state.collect()
    began = time.perf_counter()
    copy = Copy(state)
    say.value("fresh copy at the restore", time.perf_counter() - began)
    say.value("copy at the restore", statistics.median(copy.save(lambda: state, 0) for _ in range(copies)))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(Task(**given))
