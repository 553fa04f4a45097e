"""Arms of a comparison. An arm is a command that runs in its own process tree and writes a result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy_workloads.engines.entry import EngineEntry

PYTHON = (sys.executable, "-m")


@dataclass(frozen=True)
class Arm:
    """One of the programs that a bench compares."""

    name: str
    command: Callable[[Path], Sequence[str]]
    """A function that returns the command line of the arm, given the path of the file for its result. The
    command runs the arm once and writes its result as a JSON object.
    """


@dataclass(frozen=True)
class Arms:
    """The arms of a bench. Each round of the bench runs every arm once."""

    engine: Arm
    baselines: tuple[Arm, ...]
    """Arms with programs that users could run instead of the engine, the strongest program first."""
    control: Arm
    """The negative control: the first baseline again, or the engine with its mechanism switched off. It
    must not be better than the first baseline.
    """

    @property
    def all(self) -> tuple[Arm, ...]:
        """Return all arms, the engine first and the control last."""
        return (self.engine, *self.baselines, self.control)


def local_job(name: str, entry: EngineEntry, params: Mapping[str, Any], ranks: int = 2) -> Arm:
    """Return an arm that runs the engine as a local job: the launcher starts the ranks from a zygote, and
    the ranks report their progress.
    """
    arguments = [entry.package, str(ranks), json.dumps(dict(params))]
    return Arm(name, lambda result: [*PYTHON, "convoy_workloads.bench.local_job", str(result), *arguments])


def torchrun(name: str, module: str, arguments: Sequence[str], ranks: int = 2) -> Arm:
    """Return an arm that runs a module under plain torchrun. It is timed by the same stopwatch as the other
    arms.
    """
    launcher = [*PYTHON, "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    return Arm(
        name,
        lambda result: [*launcher, "convoy_workloads.bench.stopwatch", str(result), module, *arguments],
    )


def function(name: str, called: Callable[..., Mapping[str, Any]], arguments: Mapping[str, Any]) -> Arm:
    """Return an arm that calls a function in a fresh process and writes the function's return value as the
    result.
    """
    words = [called.__module__, called.__qualname__, json.dumps(dict(arguments))]
    return Arm(name, lambda result: [*PYTHON, "convoy_workloads.bench.call", str(result), *words])
