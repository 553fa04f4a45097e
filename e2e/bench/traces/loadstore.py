"""The part loadstore: exactness and speed of the load/store mode.

Speeds count processor time, because the simulator runs on one core.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from convoy_controllers.astrasim.loadstore import analytical
from convoy_controllers.astrasim.loadstore.algorithms import PLANS
from convoy_controllers.astrasim.loadstore.events import play
from convoy_controllers.astrasim.loadstore.limits import EVENTS
from convoy_controllers.astrasim.loadstore.parameters import (
    Access,
    Algorithm,
    Fabric,
    Gpu,
    Links,
    Mode,
    Setup,
    Skew,
    Sync,
)
from convoy_controllers.astrasim.loadstore.run import run
from convoy_controllers.astrasim.loadstore.sweep import sweep
from convoy_controllers.astrasim.parameters import CollectiveType
from convoy_workloads.bench.figures import Figures, Metric

REPEATS = 5
LINE = 128
WINDOWS = [(1, 1), (1, 32), (4, 16), (8, 64), (16, 37), (1, 600), (1, 601), (1, 602), (32, 32), (64, 128)]
"""Workgroups and lines in flight of each. 601 lines in flight in all fill the link."""
ROUND_TRIP = 601
"""ns of a line in `copy`: 1 on the link, the rest latencies."""
LARGE = 4 << 20
SPEED_SIZE = 1 << 20
ALL_REDUCES = (Algorithm.ONE_SHOT, Algorithm.TWO_SHOT, Algorithm.RING)
SIZES = (1 << 16, 1 << 18, 2_000_000, 3_200_000)
COMPARED = (1 << 16, 100_000, 1 << 20)


def copy(windows: int, workgroups: int, outstanding: int, access: Access, cache: float = 50) -> Setup:
    """Return a copy between two GPUs of some full windows of each workgroup."""
    return Setup(
        collective=CollectiveType.ALL_GATHER,
        algorithm=Algorithm.DIRECT,
        access=access,
        size=windows * outstanding * workgroups * LINE,
        mode=Mode.EVENTS,
        gpu=Gpu(workgroups=workgroups, outstanding=outstanding, line=LINE, issue=0, cache=cache, memory=100),
        links=Links(fabric=Fabric.FULLY_CONNECTED, gpus=2, bandwidth=LINE, latency=200),
    )


def add(found: Figures) -> None:
    """Add the figures."""
    _littles_law(found)
    _large_sizes(found)
    _closed_form(found)
    _one_for_all(found)
    for sync, target in ((Sync.GPU, 1), (Sync.WORKGROUP, 5)):
        _crossovers(found, sync, target)
    for algorithm in ALL_REDUCES:
        _speed(found, algorithm)


def _littles_law(found: Figures) -> None:
    """Add the differences from min(bandwidth, workgroups x outstanding x line / round-trip time)."""
    wrong, changed, limited = 0, 0, 0
    for access in Access:
        for workgroups, outstanding in WINDOWS:
            by_latency = Fraction(workgroups * outstanding * LINE, ROUND_TRIP)
            expected = min(Fraction(LINE), by_latency)
            wrong += _throughput(workgroups, outstanding, access, 50) != expected
            if by_latency < LINE:
                limited += 1
                changed += _throughput(workgroups, outstanding, access, 50.5) != expected
    cases = len(WINDOWS) * len(Access)
    found.add(Metric(f"Little's law: of {cases} copies, those whose throughput differs", "", target=0), wrong)
    found.add(
        Metric(
            f"negative control: of {limited} copies that latency limits, those that 1 ns of latency changes",
            "",
            target=limited,
            higher_is_better=True,
        ),
        changed,
    )


def _throughput(workgroups: int, outstanding: int, access: Access, cache: float) -> Fraction:
    """Return bytes per ns in the steady state: the copies differ by whole windows, and end alike."""
    short, long = (run(copy(windows, workgroups, outstanding, access, cache)) for windows in (2, 5))
    return (long.moved - short.moved) / (long.time - short.time)


def _large_sizes(found: Figures) -> None:
    """Add the largest excess over bytes on the busiest link over bandwidth."""
    metric = Metric(
        f"time over bytes / bandwidth - 1, {LARGE >> 20} MiB, each collective, 2 GPUs", "%", target=1
    )
    worst = 0.0
    for collective, algorithm, access in _kinds():
        setup = Setup(
            collective=collective,
            algorithm=algorithm,
            access=access,
            size=LARGE,
            mode=Mode.EVENTS,
            # The links are to limit, not the GPUs.
            gpu=Gpu(outstanding=256, line=256, cache=10, memory=10, reduce=0.01, issue=0.01, launch=0),
            links=Links(gpus=2, bandwidth=50, latency=20),
        )
        outcome = run(setup)
        worst = max(worst, float(outcome.time / (Fraction(outcome.moved) / 50)) - 1)
    found.add(metric, 100 * worst)


def _closed_form(found: Figures) -> None:
    """Add the differences between events and closed form, and the jump of the mode hybrid at its seam."""
    for sync, target in ((Sync.GPU, 1), (Sync.WORKGROUP, 5)):
        metric = Metric(
            f"closed form against events, flags of each {sync}: largest difference, 64 KiB to 1 MiB",
            "%",
            target=target,
        )
        worst = 0.0
        for setup in _defaults(sync):
            for size in COMPARED:
                one = replace(setup, size=size)
                worst = max(worst, abs(float(analytical.time(one) / run(one).time) - 1))
        found.add(metric, 100 * worst)
    jump = Fraction(0)
    for setup in _defaults(Sync.WORKGROUP):
        hybrid = replace(setup, mode=Mode.HYBRID, seam=1 << 16)
        below, above = (run(replace(hybrid, size=(1 << 16) + more)).time for more in (0, 1))
        jump = max(jump, abs(above - below) / below)
    found.add(
        Metric("jump at the seam of the mode hybrid: largest, for one byte more", "%", target=1),
        100 * float(jump),
    )


def _one_for_all(found: Figures) -> None:
    """Add the runs in which one GPU played for all differs from every GPU played."""
    wrong = cases = 0
    for sync in Sync:
        for setup in _defaults(sync):
            for fabric in Fabric:
                one = replace(
                    setup, size=10_000, links=replace(setup.links, fabric=fabric, gpus=5, header=16)
                )
                every = Skew((0.0,) * 5, (1.0,) * 5)
                wrong += play(one, EVENTS).time != play(one, EVENTS, every).time
                cases += 1
    found.add(
        Metric(f"equality: of {cases} runs, those in which one GPU for all differs", "", target=0), wrong
    )


def _crossovers(found: Figures, sync: Sync, target: float) -> None:
    """Add the sizes from which another algorithm is faster, and their difference from the closed form."""
    base = replace(Setup(), sync=sync, mode=Mode.EVENTS)
    swept = sweep(base, {"algorithm": ALL_REDUCES, "bytes": SIZES})
    by_pair = {(one.slower, one.faster): one for one in swept.crossovers}
    for faster in (Algorithm.TWO_SHOT, Algorithm.RING):
        one = by_pair.get((Algorithm.ONE_SHOT, faster))
        name = f"crossover from one-shot to {faster}, flags of each {sync}"
        found.add(Metric(f"{name}: bytes", "B", kind="simulated"), None if one is None else one.size)
        error = None if one is None or one.error is None else 100 * abs(one.error)
        found.add(Metric(f"{name}: difference of the closed form", "%", target=target), error)


def _speed(found: Figures, algorithm: Algorithm) -> None:
    metric = Metric(
        f"events a second of processor time: {algorithm} all-reduce, 1 MiB, 8 GPUs, one for all",
        "1/s",
        target=300_000,
        higher_is_better=True,
    )
    setup = Setup(algorithm=algorithm, size=SPEED_SIZE, mode=Mode.EVENTS)
    for _ in range(REPEATS):
        before = time.process_time()
        outcome = run(setup)
        found.add(metric, outcome.events / (time.process_time() - before))


def _kinds() -> Iterator[tuple[CollectiveType, Algorithm, Access]]:
    for collective, known in PLANS.items():
        for algorithm in known:
            for access in Access:
                yield collective, algorithm, access


def _defaults(sync: Sync) -> Iterator[Setup]:
    """Yield each collective, algorithm and access on the default GPUs."""
    for collective, algorithm, access in _kinds():
        yield Setup(collective=collective, algorithm=algorithm, access=access, sync=sync, mode=Mode.EVENTS)
