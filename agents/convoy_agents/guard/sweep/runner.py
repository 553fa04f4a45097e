"""One sweep of this node: probe after probe, each in a child, until all have run or the time is over."""

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
"""The most that a tier may take."""
START_SECONDS = 30.0
"""What a child may take beyond twice its sampling: interpreters and drivers start slowly."""
_KEPT = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""Of the agent's environment; variables of NVIDIA's come along by their prefix."""
_DEVICES = Path("/dev")
_ROOT = str(Path(convoy_agents.__file__).parent.parent)
_BOOT = f"import sys; sys.path.append(sys.argv.pop(1)); from {child.__name__} import main; main()"
"""After the interpreter's own folders: another interpreter has other builds of what both have."""

PairProbe = Callable[[Probe, float], Awaitable[Finding]]
"""Measures something together with the partner within so many seconds; it says itself when that fails."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one probe."""

    probe: Probe
    accelerator: int | None
    """None where it measures the node."""
    finding: Finding
    seconds: float


@dataclass(frozen=True, slots=True)
class Launch:
    """How children are started."""

    folder: Path
    """On the disk that is measured."""
    accelerator_python: str = ""
    """An interpreter that has torch; empty for the agent's own."""
    seconds: Callable[[float], float] = field(default=lambda sampling: 2 * sampling + START_SECONDS)
    """From a probe's sampling time to its deadline."""

    def argv(self, probe: Probe, accelerator: int | None) -> list[str]:
        """The child's command."""
        python = "" if probe.accelerator_use is AcceleratorUse.NONE else self.accelerator_python
        return [
            python or sys.executable, "-P", "-c", _BOOT, _ROOT,
            probe.name, str(accelerator or 0), str(probe.seconds), str(self.folder),
        ]  # fmt: skip

    def env(self, probe: Probe) -> dict[str, str]:
        """The child's environment: nothing of the agent's but what programs need to start."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT or name.startswith(("NVIDIA_", "NCCL_"))
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
    """Of one node. `run` is not for two sweeps at once: they would measure each other."""

    def __init__(self, launch: Launch, children: Children | None = None, devices: Path = _DEVICES) -> None:
        self._launch = launch
        self._children = children or Children()
        self._devices = devices

    def accelerators(self) -> int:
        """NVIDIA's devices on this node."""
        return sum(1 for entry in self._devices.glob("nvidia[0-9]*") if entry.name[6:].isdigit())

    async def run(
        self, probes: Sequence[Probe], seconds: float, paired: PairProbe, report: Callable[[Result], None]
    ) -> None:
        """Tells of each probe as it ends; whose turn does not come in time is told of as timed out."""
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
        """The accelerators that it runs on at the same time, batch after batch."""
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
            return Finding(Outcome.TIMED_OUT, "the time was over before its turn came")
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
            return Finding(Outcome.FAILED, f"it cannot be started: {error}")
        return finding.from_exit(ended)
