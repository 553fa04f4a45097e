"""Arms of a comparison: commands that write a result, each started in a process tree of its own."""

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
    """Returns the command line that runs the arm once and writes its result, a JSON object, to the given
    file.
    """


@dataclass(frozen=True)
class Arms:
    """The arms of a bench, run in alternation."""

    engine: Arm
    baselines: tuple[Arm, ...]
    """Programs that users would run instead of the engine, the strongest first."""
    control: Arm
    """The negative control, which must be no better than the first baseline: that baseline again, or the
    engine with its mechanism switched off.
    """

    @property
    def all(self) -> tuple[Arm, ...]:
        """All arms, the engine first and the control last."""
        return (self.engine, *self.baselines, self.control)


def local_job(name: str, entry: EngineEntry, params: Mapping[str, Any], ranks: int = 2) -> Arm:
    """Return an arm that runs the engine as a local job, with launcher, warm ranks and reports."""
    arguments = [entry.package, str(ranks), json.dumps(dict(params))]
    return Arm(name, lambda result: [*PYTHON, "convoy_workloads.bench.local_job", str(result), *arguments])


def torchrun(name: str, module: str, arguments: Sequence[str], ranks: int = 2) -> Arm:
    """Return an arm that runs a module under plain torchrun, with the stopwatch of the other arms."""
    launcher = [*PYTHON, "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    return Arm(
        name,
        lambda result: [*launcher, "convoy_workloads.bench.stopwatch", str(result), module, *arguments],
    )


def function(name: str, called: Callable[..., Mapping[str, Any]], arguments: Mapping[str, Any]) -> Arm:
    """Return an arm that calls a module's function in a fresh process and writes its return value."""
    words = [called.__module__, called.__qualname__, json.dumps(dict(arguments))]
    return Arm(name, lambda result: [*PYTHON, "convoy_workloads.bench.call", str(result), *words])
