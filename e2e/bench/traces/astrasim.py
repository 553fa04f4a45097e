"""The part astrasim: exactness and speed of the analytical simulator.

Speeds count processor time, because the simulator runs on one core.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from convoy_controllers.astrasim.oracle import Case, cases, differences, play
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    Backend,
    CollectiveNode,
    CollectiveType,
    Dimension,
    Implementation,
    Network,
    Optimization,
    Simulation,
    System,
    Topology,
    Workload,
)
from convoy_controllers.astrasim.parsing.simulation import simulation
from convoy_controllers.astrasim.result import Result
from convoy_controllers.astrasim.run import run
from convoy_workloads.bench.figures import Figures, Metric

ORACLE = Path(__file__).parents[3] / "tests" / "unit" / "controllers" / "astrasim" / "oracle.json"
REPEATS = 5
SPEED_RANKS = 256
LARGE = 1024
SIZE = 1 << 26
"""Bytes of the all-reduces."""
LEAST_CHANGED = 100
"""Cases that the negative control must change."""


def ring(ranks: int, splits: int, backend: Backend = Backend.UNAWARE) -> Simulation:
    """Return a ring all-reduce on a network of one ring."""
    node = CollectiveNode(1, CollectiveType.ALL_REDUCE, SIZE)
    return Simulation(
        Network(backend, (Dimension(Topology.RING, ranks, 50.0, 500.0),)),
        System(
            {CollectiveType.ALL_REDUCE: (Implementation(AlgorithmKind.RING),)},
            splits,
            1600.0,
            optimization=Optimization.LOCAL_BANDWIDTH_AWARE,
        ),
        Workload(((node,),) * ranks),
    )


def add(found: Figures) -> None:
    """Add the figures."""
    _exactness(found, cases(json.loads(ORACLE.read_text())))
    for backend in Backend:
        metric = Metric(
            f"messages a second of processor time: {backend} ring all-reduce, {SPEED_RANKS} ranks",
            "1/s",
            target=100_000,
            higher_is_better=True,
        )
        for _ in range(REPEATS):
            result, seconds = _timed(ring(SPEED_RANKS, 1, backend), collapse=False)
            found.add(metric, result.messages / seconds)
    _large(found)


def _exactness(found: Figures, listed: list[Case]) -> None:
    """Add the exactness on ASTRA-sim's cases, event by event, and the speed on all of them."""
    wrong = messages = changed = 0
    seconds = 0.0
    for case in listed:
        before = time.process_time()
        result = play(case, collapse=False)
        seconds += time.process_time() - before
        messages += result.messages
        wrong += bool(differences(case, result))
        if case.finishes:
            read = simulation(case.field.value)
            later = replace(read.system, endpoint_delay=read.system.endpoint_delay + 1)
            changed += bool(differences(case, run(replace(read, system=later))))
    finishing = sum(one.finishes for one in listed)
    found.add(Metric("ASTRA-sim's cases", ""), len(listed))
    found.add(Metric("equality: cases that differ by a nanosecond or more", "", target=0), wrong)
    found.add(
        Metric(
            f"negative control: of {finishing} cases that finish, those that endpoint delay + 1 ns changes",
            "",
            target=LEAST_CHANGED,
            higher_is_better=True,
        ),
        changed,
    )
    found.add(
        Metric(
            "messages a second of processor time: ASTRA-sim's cases",
            "1/s",
            target=100_000,
            higher_is_better=True,
        ),
        messages / seconds,
    )


def _large(found: Figures) -> None:
    """Add the times of an all-reduce of many ranks, and compare one rank for all with every rank."""
    one = Metric(f"ring all-reduce of {LARGE} ranks, 1 split, event by event: processor time", "s", target=30)
    found.add(one, _timed(ring(LARGE, 1), collapse=False)[1])
    metric = Metric(
        f"ring all-reduce of {LARGE} ranks, 4 splits, one rank for all: processor time", "s", target=60
    )
    for _ in range(REPEATS):
        found.add(metric, _timed(ring(LARGE, 4), collapse=True)[1])
    differing = 0
    for ranks in (3, 16, 64):
        for backend in Backend:
            every, alone = (_timed(ring(ranks, 4, backend), collapse)[0] for collapse in (False, True))
            differing += not alone.collapsed or every.ranks != alone.ranks
    found.add(
        Metric("equality: ring all-reduces of 3 to 64 ranks in which one rank for all differs", "", target=0),
        differing,
    )


def _timed(simulated: Simulation, collapse: bool) -> tuple[Result, float]:
    """Return the result and the seconds of processor time. Raises RuntimeError if the run does not finish."""
    before = time.process_time()
    result = run(simulated, collapse=collapse)
    seconds = time.process_time() - before
    if not result.finished:
        raise RuntimeError(f"the simulation does not finish: {result.findings}")
    return result, seconds
