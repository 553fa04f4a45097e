"""Runs one sweep of this node, probe after probe, each in a child, until all have run or time is over."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import convoy_agents
from convoy_agents.guard.sweep import child, finding
from convoy_agents.guard.sweep.finding import Finding, Outcome
from convoy_agents.guard.sweep.probe import AcceleratorUse, Probe, Tier
from convoy_agents.guard.sweep.probes import inventory
from convoy_agents.guard.sweep.process import Children, TooManyStuckError

TIER_SECONDS = {Tier.L0: 60.0, Tier.L1: 600.0, Tier.L2: 600.0}
"""Maximum seconds of each tier."""
START_SECONDS = 30.0
"""Seconds that a child may use in addition to twice its sampling time, because interpreters and drivers
start slowly.
"""
_INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""Variables of the agent's environment that children inherit, besides NVIDIA's and NCCL's."""
_DEVICES = Path("/dev")
_ROOT = str(Path(convoy_agents.__file__).parent.parent)
_BOOT = f"import sys; sys.path.append(sys.argv.pop(1)); from {child.__name__} import main; main()"
"""Appends the package's folder after the interpreter's own, because another interpreter needs its own
builds of shared packages.
"""

PairProbe = Callable[[Probe, float], Awaitable[Finding]]
"""Runs a probe together with the partner within a number of seconds. It returns failures as findings."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one probe."""

    probe: Probe
    accelerator: int | None
    """Index of the accelerator; None for a probe of the node."""
    finding: Finding
    seconds: float


@dataclass(frozen=True, slots=True)
class Launch:
    """Parameters for starting children."""

    folder: Path
    """A folder on the disk to measure."""
    accelerator_python: str = ""
    """Interpreter with torch; empty for the agent's own."""
    seconds: Callable[[float], float] = field(default=lambda sampling: 2 * sampling + START_SECONDS)
    """Computes a child's deadline from the probe's sampling time."""

    def argv(self, probe: Probe, accelerator: int | None) -> list[str]:
        """Return the child's command."""
        python = "" if probe.accelerator_use is AcceleratorUse.NONE else self.accelerator_python
        return [
            python or sys.executable, "-P", "-c", _BOOT, _ROOT,
            probe.name, str(accelerator or 0), str(probe.seconds), str(self.folder),
        ]  # fmt: skip

    def env(self, probe: Probe) -> dict[str, str]:
        """Return the child's environment: only the variables that programs need to start."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _INHERITED or name.startswith(("NVIDIA_", "NCCL_"))
        }
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
        return {
            **kept,
            **(threads if probe.one_thread else {}),
            "PYTHONDONTWRITEBYTECODE": "1",
            child.PARENT: str(os.getpid()),
            **({inventory.PYTHON: self.accelerator_python} if self.accelerator_python else {}),
        }


class Runner:
    """Runs sweeps on this node. Two concurrent calls of `run` would disturb each other."""

    def __init__(self, launch: Launch, children: Children | None = None, devices: Path = _DEVICES) -> None:
        self._launch = launch
        self._children = children or Children()
        self._devices = devices

    def accelerators(self) -> int:
        """Return the number of NVIDIA devices of this node."""
        return sum(1 for entry in self._devices.glob("nvidia[0-9]*") if entry.name[6:].isdigit())

    async def run(
        self, probes: Sequence[Probe], seconds: float, paired: PairProbe, report: Callable[[Result], None]
    ) -> None:
        """Call `report` with each probe's result. A probe that cannot start in time is reported as timed
        out.
        """
        began = time.monotonic()
        for tier in Tier:
            mine = [probe for probe in probes if probe.tier is tier]
            end = min(began + seconds, time.monotonic() + TIER_SECONDS[tier])
            for probe in mine:
                for batch in self._batches(probe):
                    for result in await asyncio.gather(
                        *(self._timed(probe, accelerator, end, paired) for accelerator in batch)
                    ):
                        report(result)

    def _batches(self, probe: Probe) -> Sequence[Sequence[int | None]]:
        """Return batches of accelerators. The accelerators of a batch are measured concurrently."""
        there = range(self.accelerators() or 1)
        if probe.accelerator_use is AcceleratorUse.EACH:
            return [there]
        return [[one] for one in there] if probe.accelerator_use is AcceleratorUse.IN_TURN else [[None]]

    async def _timed(self, probe: Probe, accelerator: int | None, end: float, paired: PairProbe) -> Result:
        start = time.monotonic()
        found = await self._one(probe, accelerator, end - start, paired)
        return Result(probe, accelerator, found, time.monotonic() - start)

    async def _one(self, probe: Probe, accelerator: int | None, left: float, paired: PairProbe) -> Finding:
        if left <= 0:
            return Finding(Outcome.TIMED_OUT, "the sweep's time was over before the probe started")
        seconds = min(left, self._launch.seconds(probe.seconds))
        if probe.tier is Tier.L2:
            return await paired(probe, seconds)
        try:
            ended = await self._children.run(
                self._launch.argv(probe, accelerator), self._launch.env(probe), seconds
            )
        except TooManyStuckError as error:
            return Finding(Outcome.HUNG, str(error))
        except OSError as error:
            return Finding(Outcome.FAILED, f"the probe's child process cannot be started: {error}")
        return finding.from_exit(ended)
