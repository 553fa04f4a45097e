"""Runs a sweep of this node. The probes run in the order of their tiers, each in a child process. The sweep
ends when all probes have run, or at its deadline.
"""

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
"""Maximum seconds for all probes of one tier together, by tier."""
START_SECONDS = 30.0
"""Seconds to allow for the start of a child. The child's deadline is START_SECONDS plus twice the probe's
sampling time. The value is large because interpreters and drivers start slowly.
"""
_INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""Names of the agent's environment variables that children inherit. Children also inherit variables of
NVIDIA and NCCL.
"""
_DEVICES = Path("/dev")
_ROOT = str(Path(convoy_agents.__file__).parent.parent)
_BOOT = f"import sys; sys.path.append(sys.argv.pop(1)); from {child.__name__} import main; main()"
"""Program that starts a child. It appends the agent's package folder at the end of the module path, because
another interpreter must use its own builds of shared packages.
"""

PairProbe = Callable[[Probe, float], Awaitable[Finding]]
"""Runs a probe together with the partner node within a number of seconds. A failure is returned as a
finding.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run of a probe."""

    probe: Probe
    accelerator: int | None
    """Index of the measured accelerator; None if the probe does not measure a single accelerator."""
    finding: Finding
    seconds: float


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters with which children are started."""

    folder: Path
    """Folder on the disk whose speed is measured."""
    accelerator_python: str = ""
    """Path of an interpreter with torch, for probes of accelerators. If it is empty, the agent's own
    interpreter runs them.
    """
    seconds: Callable[[float], float] = field(default=lambda sampling: 2 * sampling + START_SECONDS)
    """Returns the seconds until a child's deadline, given the probe's sampling time in seconds."""

    def argv(self, probe: Probe, accelerator: int | None) -> list[str]:
        """Return the command that starts the child for a probe."""
        python = "" if probe.accelerator_use is AcceleratorUse.NONE else self.accelerator_python
        return [
            python or sys.executable, "-P", "-c", _BOOT, _ROOT,
            probe.name, str(accelerator or 0), str(probe.seconds), str(self.folder),
        ]  # fmt: skip

    def env(self, probe: Probe) -> dict[str, str]:
        """Return the child's environment, which contains only the variables that the child needs."""
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
    """Runs the probes of a sweep. Two calls of `run` must not be concurrent, because they would disturb
    each other's measurements.
    """

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
        """Run all probes within `seconds`, and call `report` with each result. A probe that cannot start
        within this time gets the outcome TIMED_OUT.

        `paired` runs the probes of tier L2.
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
        """Return the runs of a probe, as batches of accelerator indexes. The runs of one batch are
        concurrent. None stands for a run that is not for a single accelerator.
        """
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
