"""Checks a run before it starts: the range of each parameter, and the number of events."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from convoy_controllers.astrasim.loadstore.algorithms import PLANS, phases
from convoy_controllers.astrasim.loadstore.fabric import route
from convoy_controllers.astrasim.loadstore.parameters import Mode, Setup, Sync
from convoy_controllers.astrasim.loadstore.program import active_workgroups
from convoy_controllers.astrasim.parsing.fields import InvalidInput

EVENTS = 50_000_000
"""Events that a run may play: about two minutes."""
LINES = (32, 64, 128, 256)
MOST_GPUS = 1024
MOST_WORKGROUPS = 4096
MOST_OUTSTANDING = 65_536
MOST_SIZE = 1 << 40
MOST_SEAM = 1 << 30
MOST_NS = 1e9
MOST_BANDWIDTH = 1e6
LEAST = 0.001
"""Least latency of a link in ns, and least bandwidth in bytes per ns."""


def check(setup: Setup, path: str = "loadStore") -> None:
    """Raise InvalidInput for the first parameter that no run can use. `path` is the path of the setup."""
    for name, value, least, most in _ranges(setup):
        if not (math.isfinite(value) and least <= value <= most):
            raise InvalidInput(f"{path}.{name}", f"must be from {least:g} to {most:g}, is {value:g}")
    gpu, known = setup.gpu, PLANS.get(setup.collective, {})
    if gpu.line not in LINES:
        raise InvalidInput(
            f"{path}.gpu.lineBytes", f"must be one of {', '.join(map(str, LINES))}, is {gpu.line}"
        )
    if gpu.workgroups > gpu.compute_units:
        raise InvalidInput(
            f"{path}.gpu.workgroups",
            f"must be at most {gpu.compute_units}, the computeUnits, is {gpu.workgroups}: workgroups wait "
            "for those of other GPUs, so all must run at once",
        )
    if not known:
        names = ", ".join(PLANS)
        raise InvalidInput(f"{path}.collective", f"must be one of {names}, is {setup.collective}")
    if setup.algorithm not in known:
        raise InvalidInput(
            f"{path}.algorithm",
            f"must be one of {', '.join(known)} for {setup.collective}, is {setup.algorithm}",
        )
    if setup.mode is Mode.ANALYTICAL and not setup.links.control_first:
        raise InvalidInput(
            f"{path}.mode",
            "the closed form needs links.controlFirst, because it does not know the data that a request "
            "waits for: use events",
        )


def check_events(setup: Setup, budget: int, every_gpu: bool, path: str = "loadStore") -> None:
    """Raise InvalidInput if a run needs more events than `budget`."""
    needed = events(setup, every_gpu)
    if needed > budget:
        raise InvalidInput(
            f"{path}.bytes",
            f"the run needs about {needed:,} events, more than {budget:,}: use fewer bytes or GPUs, longer "
            f"lines, a smaller seamBytes with the mode {Mode.HYBRID}, or the mode {Mode.ANALYTICAL}; or "
            "raise the limit of events",
        )


def plays_events(setup: Setup, every_gpu: bool) -> bool:
    """Return True if a run plays each line of its whole message."""
    return (
        setup.mode is Mode.EVENTS
        or every_gpu
        or (setup.mode is Mode.HYBRID and (setup.size <= setup.seam or not setup.links.control_first))
    )


def events(setup: Setup, every_gpu: bool) -> int:
    """Return the number of events of a run, or a little more.

    `every_gpu`: every GPU is played. Otherwise one is played for all.
    """
    if setup.mode is Mode.ANALYTICAL and not every_gpu:
        return 0
    if not plays_events(setup, every_gpu):
        setup = replace(setup, size=setup.seam)
    links, groups = setup.links, active_workgroups(setup)
    light = links.header == 0 and links.control_first
    found = groups
    for phase in phases(setup):
        there = sum(len(route(links.fabric, links.gpus, peer)) for peer in phase.peers)
        back = 0 if light else sum(len(route(links.fabric, links.gpus, links.gpus - p)) for p in phase.peers)
        lines = -(-phase.size // setup.gpu.line)
        flagging = groups if setup.sync is Sync.WORKGROUP else 1
        found += lines * (there + back + len(phase.peers))
        found += flagging * (len(phase.peers) + max(there, back) * (not light)) + 5 * groups
    return found * (links.gpus if every_gpu else 1)


def _ranges(setup: Setup) -> Iterator[tuple[str, float, float, float]]:
    """Yield (path, value, least, most) of each number."""
    gpu, links = setup.gpu, setup.links
    yield "bytes", setup.size, 1, MOST_SIZE
    yield "seamBytes", setup.seam, 1, MOST_SEAM
    yield "gpu.computeUnits", gpu.compute_units, 1, MOST_WORKGROUPS
    yield "gpu.workgroups", gpu.workgroups, 1, MOST_WORKGROUPS
    yield "gpu.outstanding", gpu.outstanding, 1, MOST_OUTSTANDING
    yield "gpu.lineBytes", gpu.line, LINES[0], LINES[-1]
    yield "gpu.issueNs", gpu.issue, 0, MOST_NS
    yield "gpu.cacheNs", gpu.cache, 0, MOST_NS
    yield "gpu.memoryNs", gpu.memory, 0, MOST_NS
    yield "gpu.reduceNs", gpu.reduce, 0, MOST_NS
    yield "gpu.barrierNs", gpu.barrier, 0, MOST_NS
    yield "gpu.launchNs", gpu.launch, 0, MOST_NS
    yield "links.gpus", links.gpus, 2, MOST_GPUS
    yield "links.bytesPerNs", links.bandwidth, LEAST, MOST_BANDWIDTH
    yield "links.latencyNs", links.latency, LEAST, MOST_NS
    yield "links.headerBytes", links.header, 0, 4096
    yield "links.burstBytes", links.burst, 0, MOST_SEAM
