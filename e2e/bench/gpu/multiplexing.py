"""Measures the engine fmplex on a GPU. The engines of all arms are loaded once, in this process."""

from __future__ import annotations

import dataclasses
import gc
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from convoy_workloads.bench.arms import Arm, Arms
from convoy_workloads.bench.comparison import Bench, Measure, compare
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial
from convoy_workloads.engines.fmplex import bench
from convoy_workloads.engines.fmplex.engine import Multiplexer
from convoy_workloads.engines.fmplex.open_loop import LETTERS, capacity
from e2e.bench.gpu.training import device

ROUNDS = 5
SMALL_MODEL = {**bench.SIZES["full"], "requests": 4000}
"""The backbone of the bench on CPUs."""
LARGE_MODEL = {
    **SMALL_MODEL,
    "backbone": {**bench.BACKBONE, "layers": 12, "width": 768, "heads": 12, "context": 64},
    "letters": 64,
    "requests": 2500,
}
"""A backbone of 85 million parameters, the size of GPT-2 without its embeddings, with longer texts."""
MODELS = {"11 million parameters, 8 bytes": SMALL_MODEL, "85 million parameters, 64 bytes": LARGE_MODEL}


class Engines:
    """Runs the arms. Loaded engines are kept, so that arms with the same engines share them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = dict(options)
        self._loaded: dict[tuple[bool, str], tuple[list[Multiplexer], float]] = {}

    def measure_capacity(self) -> None:
        """Measure the capacity of the shared backbone, which decides the load of all arms."""
        if (True, "Fair") not in self._loaded:
            self._loaded[True, "Fair"] = _load(self._options, True, "Fair")
        engine = self._loaded[True, "Fair"][0][0]
        task, letters = bench.tasks(1)[0]["name"], self._options.get("letters", LETTERS)
        self._options["capacity"] = capacity(engine, task, self._options["batch"], letters, time.perf_counter)

    def trial(self, arm: Arm) -> Trial:
        """Run an arm once."""
        given = json.loads(arm.command(Path())[-1])
        shared, order = bool(given["shared"]), str(given["order"])
        # Private engines have one task each, so all orders give the same engines.
        key = (shared, order if shared else "Fair")
        if key not in self._loaded:
            self._loaded[key] = _load(self._options, *key)
        engines, weights = self._loaded[key]
        found = bench.served(engines, self._options, order, given["flood"])
        return Trial(0.0, 0.0, {**found, "weights": weights})

    def padded(self) -> int:
        """Return the number of engines that pad all batches, because the size of a batch changes bits."""
        engines = [engine for some, _ in self._loaded.values() for engine in some]
        return sum(bool(engine.deployment.pods[0].padded) for engine in engines)


def _load(options: dict[str, Any], shared: bool, order: str) -> tuple[list[Multiplexer], float]:
    """Return loaded engines, and the memory of the GPU that they keep."""
    before = _allocated()
    engines = bench.load(options, shared, order)
    return engines, _allocated() - before


def _allocated() -> float:
    gc.collect()
    return float(torch.cuda.memory_allocated()) if torch.cuda.is_available() else 0.0


def add(figures: Figures, small: bool) -> None:
    """Add the rows."""
    # The first use of the GPU allocates memory that belongs to no model.
    bench.load({**bench.SIZES["small"], "device": device()}, True, "Fair")
    for name, options in MODELS.items():
        given = {**options, "device": device()}
        if small:
            given |= {"backbone": {**bench.TINY, "context": 8}, "letters": 8, "requests": 200, "tasks": 3}
        engines = Engines(given)
        engines.measure_capacity()
        for one, rounds in ((bench.BENCH, ROUNDS), (bench.FLOOD, ROUNDS)):
            chosen = _with_options(one, given)
            for arm in chosen.arms(given).all:
                engines.trial(arm)
            found = compare(chosen, "full", 1 if small else rounds, engines.trial)
            figures.merge(_named(_main_rows(found, chosen.arms(given)), f"fmplex, {name}"))
        metric = Metric(f"fmplex, {name}: engines that pad their batches to {given['batch']} rows", "count")
        figures.add(metric, float(engines.padded()))
        del engines


def _with_options(one: Bench, options: dict[str, Any]) -> Bench:
    def measures(given: Any) -> Sequence[Measure]:
        # A GPU has nothing to divide by without memory of weights, as in a trial on a CPU.
        return [each for each in one.measures(given) if "memory" not in each.name or device() == "cuda"]

    return dataclasses.replace(one, sizes={"full": options}, measures=measures)


def _main_rows(found: Figures, arms: Arms) -> Figures:
    """Return the checks, the latencies of all arms, and else the rows of the engine and its first
    baseline.
    """
    first = arms.baselines[0].name
    made = Figures()
    for name, metric in found.metrics.items():
        check = name.startswith(("equality", "negative control"))
        own = "latency" in name and "times better" not in name
        if (
            check
            or own
            or name.endswith((f": {arms.engine.name}", f": {first}", f"times better than {first}"))
        ):
            made.metrics[name], made.values[name] = metric, found.values[name]
    return made


def _named(found: Figures, prefix: str) -> Figures:
    """Return the figures with a prefix in their names. Checks keep their names' beginning."""
    made = Figures()
    for name, metric in found.metrics.items():
        start, colon, rest = name.partition(": ")
        check = start in ("equality", "negative control")
        other = f"{start}: {prefix}, {rest}" if check else f"{prefix}: {start}{colon}{rest}"
        made.metrics[other] = dataclasses.replace(metric, name=other)
        made.values[other] = found.values[name]
    return made
