"""Waits and counts that several scenarios share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from e2e.bench.rig.audit import Entry, writes
from e2e.bench.rig.jobs import Shape
from e2e.bench.rig.plane import OPERATOR_USER
from e2e.bench.rig.rig import Rig
from e2e.bench.rig.rollout import running_since

SETTLE_SECONDS = 3.0
"""Seconds to wait for late writes, such as Events, after the jobs have reached the expected phase."""
ROLLOUT_SECONDS = 150.0
"""Maximum seconds to wait for a rollout or a recovery."""


@dataclass(frozen=True)
class Rate:
    """A limit on the operator's API requests per second (`qps`). 0 means no limit."""

    qps: float
    title: str

    def target(self, uncapped: float, capped: float) -> float:
        """Return `capped` if the rate is limited, else `uncapped`."""
        return capped if self.qps else uncapped


UNCAPPED, CAPPED = Rate(0.0, "uncapped"), Rate(100.0, "100 requests/s")


def ours(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries in which the operator changed an object."""
    return writes(entries, [OPERATOR_USER])


def created(entries: Sequence[Entry]) -> int:
    """Return the number of created pods."""
    return sum(entry.is_a("create", "pods") for entry in entries)


async def bring_up(rig: Rig, shape: Shape, seconds: float = ROLLOUT_SECONDS) -> bool:
    """Wait for a quiet machine and create the jobs of a shape. Return True if all of them became Running
    within `seconds`.
    """
    await rig.wait_quiet()
    rig.log.restart()
    await rig.create(shape)
    return await rig.holds_in_time(lambda: len(running_since(rig.entries)) >= shape.jobs, seconds)
