"""Arms of a comparison: commands that leave a result, each started in a process tree of its own."""

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
    """One side of a comparison."""

    name: str
    command: Callable[[Path], Sequence[str]]
    """Returns the command line that runs the arm once and writes its result, a JSON object, to the file."""


@dataclass(frozen=True)
class Arms:
    """The arms of a bench, run in turns."""

    engine: Arm
    baselines: tuple[Arm, ...]
    """Programs that users would run instead, the strongest first."""
    control: Arm
    """The negative control. It must be no better than the first baseline: that baseline once more, or
    the engine with its mechanism switched off."""

    @property
    def all(self) -> tuple[Arm, ...]:
        """Every arm, the engine first and the control last."""
        return (self.engine, *self.baselines, self.control)


def local_job(name: str, entry: EngineEntry, params: Mapping[str, Any], ranks: int = 2) -> Arm:
    """Return the engine as local processes of a TrainingJob: launcher, warm ranks, reports and all."""
    arguments = [entry.package, str(ranks), json.dumps(dict(params))]
    return Arm(name, lambda result: [*PYTHON, "convoy_workloads.bench.local_job", str(result), *arguments])


def torchrun(name: str, module: str, arguments: Sequence[str], ranks: int = 2) -> Arm:
    """Return a module under plain torchrun, its optimizer steps timed by the same stopwatch."""
    launcher = [*PYTHON, "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    return Arm(
        name,
        lambda result: [*launcher, "convoy_workloads.bench.stopwatch", str(result), module, *arguments],
    )


def function(name: str, called: Callable[..., Mapping[str, Any]], arguments: Mapping[str, Any]) -> Arm:
    """Return a call of a module's function, whose result is the arm's, in a fresh process."""
    words = [called.__module__, called.__qualname__, json.dumps(dict(arguments))]
    return Arm(name, lambda result: [*PYTHON, "convoy_workloads.bench.call", str(result), *words])
