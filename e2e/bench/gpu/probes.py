"""Measures the probes of health sweeps on a GPU: do they run in their time, and how steady are they?"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from convoy_agents.guard.sweep import catalogue
from convoy_agents.guard.sweep.finding import Finding, Outcome
from convoy_agents.guard.sweep.probe import Probe
from convoy_agents.guard.sweep.runner import START_SECONDS, Launch, Result, Runner
from convoy_controllers.guard.sweep.metric import CRITERIA, Criterion
from convoy_workloads.bench.figures import Figures, Metric

REPEATS = 3
SHARE = 0.1
"""Share of the catalogue's seconds for which each repeat takes samples."""
RATES = ("gemm", "hbm", "pcie-h2d", "pcie-d2h")
ALONE = ("inventory", "nvlink", "nccl")
"""Probes that run once."""
DIGEST = "gpu-fingerprint"
_SIZE = 8192
_LOOP_RUNS = 200


def add(figures: Figures, small: bool) -> None:
    """Add the rows."""
    runner = Runner(Launch(Path(tempfile.gettempdir()), sys.executable))
    figures.add(Metric("probes: accelerators that the agent finds", "count"), float(runner.accelerators()))
    share = 0.02 if small else SHARE
    for name in ALONE:
        found = _run(runner, name, 1.0)
        _add_outcome(figures, found)
        if facts := [fact for fact in found.finding.facts if fact.startswith(("gpu", "own.gpu"))]:
            figures.add(Metric(f"probe {name}: facts about accelerators", "count"), float(len(facts)))
    medians: dict[str, list[float]] = {name: [] for name in RATES}
    digests: list[str] = []
    for _ in range(REPEATS):
        for name in RATES:
            found = _run(runner, name, share)
            _add_outcome(figures, found)
            if found.finding.samples:
                medians[name].append(statistics.median(found.finding.samples))
                _add_rates(figures, found.probe, found.finding.samples)
        found = _run(runner, DIGEST, 1.0)
        _add_outcome(figures, found)
        digests += found.finding.digests
        if torch.cuda.is_available():
            _add_loop(figures)
    for name in RATES:
        _add_difference(figures, name, medians[name])
    if digests:
        metric = Metric(
            f"equality: {DIGEST}, different digests less one", "count", 0.0, spread=f"n={len(digests)}"
        )
        figures.add(metric, float(len(set(digests)) - 1))


def _run(runner: Runner, name: str, share: float) -> Result:
    """Run a probe on the first GPU."""
    probe = catalogue.ALL[name]
    found: list[Result] = []

    async def paired(probe: Probe, seconds: float) -> Finding:
        raise AssertionError(probe)

    chosen = dataclasses.replace(probe, seconds=probe.seconds * share)
    asyncio.run(runner.run([chosen], 600.0, paired, found.append))
    print(f"{name}: {found[0].finding.outcome} {found[0].finding.message}", flush=True)
    return found[0]


def _add_outcome(figures: Figures, found: Result) -> None:
    probe, finding = found.probe, found.finding
    if finding.outcome is not Outcome.MEASURED:
        why = f"{finding.outcome}: {finding.message}"
        figures.add_unmeasured(Metric(f"probe {probe.name}: {probe.unit or 'outcome'}", probe.unit), why)
        return
    metric = Metric(f"probe {probe.name}: time beyond that of its samples", "seconds", START_SECONDS)
    figures.add(metric, max(0.0, found.seconds - (probe.seconds if finding.samples else 0.0)))


def _add_rates(figures: Figures, probe: Probe, samples: Sequence[float]) -> None:
    name = f"probe {probe.name}"
    tenth = max(1, len(samples) // 10)
    figures.add(
        Metric(f"{name}: median of the samples", probe.unit, higher_is_better=True),
        statistics.median(samples),
    )
    deviation = statistics.stdev(samples) / statistics.mean(samples)
    figures.add(Metric(f"{name}: standard deviation of the samples", "share"), deviation)
    last = statistics.median(samples[-tenth:]) / statistics.median(samples[:tenth])
    figures.add(Metric(f"{name}: last tenth of the samples over the first", "ratio"), last)
    figures.add(Metric(f"{name}: samples", "count"), float(len(samples)))


def _add_difference(figures: Figures, name: str, medians: Sequence[float]) -> None:
    if len(medians) == REPEATS:
        limit = CRITERIA.get(name, Criterion(0.05)).deficit
        metric = Metric(
            f"probe {name}: slowest repeat, below the fastest", "share", limit, spread=f"n={REPEATS}"
        )
        figures.add(metric, 1 - min(medians) / max(medians))


def _add_loop(figures: Figures) -> None:
    """Add the rate of a plain loop of the product that the probe computes, by the wall clock."""
    left, right = (torch.randn(_SIZE, _SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(10):
        torch.matmul(left, right)
    torch.cuda.synchronize()
    started_at = time.perf_counter()
    for _ in range(_LOOP_RUNS):
        torch.matmul(left, right)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started_at
    figures.add(
        Metric("probe gemm: a plain loop of torch.matmul", "TFLOP/s", higher_is_better=True),
        _LOOP_RUNS * 2 * _SIZE**3 / 1e12 / seconds,
    )
