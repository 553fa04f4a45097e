"""The rows of adaptiveload in docs/bench/engines_training.json."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from convoy_workloads.bench.comparison import Measure, Ratio, ratio
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.trial import Trial, run
from convoy_workloads.engines.adaptiveload.bench import BASE, DEALT, EQUAL, FULL, program
from convoy_workloads.engines.adaptiveload.layernorm_modulate import (
    layernorm_modulate,
    plain_layernorm_modulate,
    saved_bytes,
)
from convoy_workloads.engines.adaptiveload.model import DiT
from convoy_workloads.engines.adaptiveload.params import Params
from convoy_workloads.engines.adaptiveload.simulation import Setting, Simulated, simulate
from convoy_workloads.engines.adaptiveload.training import loss_of, own_seconds
from convoy_workloads.packing.step_cost import (
    Timing,
    fit_linear_quadratic,
    fit_power_law,
    mape,
)

ROUNDS, SEEDS, WORLD = 5, 7, 8
AGAIN = "equal-token batches again"
BUCKETS = (128, 256, 512, 1024, 2048, 4096)
BUDGET, MEMORY, WINDOW = 4096, 12_288, 3072
"""Tokens of an equal-token batch, and the memory limit of the method, which must be larger: with equal
limits, the compute limit has no effect. Samples of a window.
"""
SAMPLES = 6144
SETTINGS: Mapping[str, Setting] = {
    "equal tokens": Setting(rule="equal_tokens", memory_tokens=BUDGET),
    "paper's rule, fitted p": Setting(rule="paper", memory_tokens=MEMORY, compute_tokens=BUDGET),
    "paper's rule, p = 2": Setting(rule="paper", memory_tokens=MEMORY, compute_tokens=BUDGET, exponent=2.0),
    "measured cost": Setting(rule="measured", memory_tokens=MEMORY, compute_tokens=BUDGET),
    "equal tokens, sorted dealing": Setting(rule="equal_tokens", memory_tokens=BUDGET, sort=True),
    "measured cost, sorted dealing": Setting(
        rule="measured", memory_tokens=MEMORY, compute_tokens=BUDGET, sort=True
    ),
    "both limits equal, p = 2": Setting(
        rule="paper", memory_tokens=BUDGET, compute_tokens=MEMORY * 8, exponent=2.0
    ),
}
TARGETS = {
    "paper's rule, p = 2": (0.22, None),
    "measured cost": (0.15, 1.35),
    "equal tokens, sorted dealing": (0.05, 1.5),
    "measured cost, sorted dealing": (0.05, 1.5),
}
"""Maximum imbalance and minimum gain over equal tokens."""
CONTROL = "both limits equal, p = 2"
BUSY = Measure(name="time", unit="seconds", value_of=lambda trial: trial.result["busy"])
VARIANTS: Mapping[str, dict[str, Any]] = {
    DEALT: {**FULL},
    "measured cost, random dealing": {**FULL, "dealing": "none"},
    "equal tokens, sorted dealing": {**FULL, "rule": "equal_tokens"},
    EQUAL: {**FULL, **BASE},
    AGAIN: {**FULL, **BASE},
}


def figures(rounds: int = ROUNDS) -> Figures:
    """Measure all rows that need no GPU."""
    found = Figures()
    timings = profiled()
    _fits(found, timings)
    simulated = {
        name: [simulate(one, timings, _mix(seed), WORLD, WINDOW, seed) for seed in range(SEEDS)]
        for name, one in SETTINGS.items()
    }
    _simulated(found, simulated)
    _measured(found, measure(VARIANTS, rounds))
    _memory(found)
    _claims(found)
    return found


def profiled() -> list[Timing]:
    """Measure steps of one block of width 192, as processor time of one thread: for each bucket one sample,
    and batches up to the budget. Each time is the faster of two, after a first one.
    """
    torch.set_num_threads(1)
    params = Params(layers=1, width=192, buckets=list(BUCKETS), memory_tokens=MEMORY)
    torch.manual_seed(0)
    model, device = DiT(params), torch.device("cpu")
    found = []
    for tokens in BUCKETS:
        for batch in sorted({1, max(1, BUDGET // tokens), max(1, BUDGET // (2 * tokens))}):
            times = []
            for _ in range(3):
                before = own_seconds(device)
                videos = torch.zeros(batch, tokens, params.channels)
                loss_of(model, videos, (0,), device).backward()  # type: ignore[no-untyped-call]
                times.append(own_seconds(device) - before)
            found.append(Timing(batch, tokens, min(times[1:])))
    return found


def measure(variants: Mapping[str, Mapping[str, Any]], rounds: int) -> dict[str, list[Trial]]:
    """Run all variants in each round, by the same two processes. Return the trials by name."""
    options = {"arms": [dict(one) for one in variants.values()], "rounds": rounds}
    results: Any = run(program("arms of adaptiveload", options), 3600.0).result
    return {
        name: [Trial(one["seconds"], one["processor_seconds"], one) for one in listed]
        for name, listed in zip(variants, results, strict=True)
    }


def _mix(seed: int) -> list[int]:
    """Return the sizes of the samples. Short samples are more, but long ones have more tokens in all."""
    drawn = random.Random(seed)  # noqa: S311 - a simulation
    weights = [1 / tokens**0.5 for tokens in BUCKETS]
    return drawn.choices(BUCKETS, weights, k=SAMPLES)


def _fits(found: Figures, timings: Sequence[Timing]) -> None:
    power, mixed = fit_power_law(timings), fit_linear_quadratic(timings)
    sizes = f"{len(timings)} sizes"
    found.add(Metric("adaptiveload, cost of a step: fitted exponent p", "", spread=sizes), power.exponent)
    for name, model, target in (
        ("power law", power, None), ("linear and quadratic", mixed, 0.15)
    ):  # fmt: skip
        metric = Metric(
            f"adaptiveload, cost of a step: mean relative error, {name}", "ratio", target, spread=sizes
        )
        found.add(metric, mape(model, timings))
    for tokens in (BUCKETS[0], BUCKETS[-1]):
        metric = Metric(f"adaptiveload, cost of a step: local exponent at {tokens} tokens", "", spread=sizes)
        found.add(metric, mixed.local_exponent(tokens))


def _simulated(found: Figures, results: Mapping[str, Sequence[Simulated]]) -> None:
    kind, base = "calibrated simulation", results["equal tokens"]
    for name, runs in results.items():
        limit, least = TARGETS.get(name, (None, None))
        title = f"adaptiveload, {WORLD} ranks: imbalance, {name}"
        for one in runs:
            found.add(Metric(title, "ratio", limit, kind=kind), one.imbalance)
        if name == "equal tokens":
            continue
        gains = [
            other.seconds_per_sample / one.seconds_per_sample for one, other in zip(runs, base, strict=True)
        ]
        if name == CONTROL:
            title = "negative control: adaptiveload, compute limit without effect, gain over equal tokens"
            for gain in gains:
                found.add(Metric(title, "ratio - 1", 0.05, kind=kind), gain - 1)
            continue
        title = f"adaptiveload, {WORLD} ranks: samples per second, {name}, times better than equal tokens"
        for gain in gains:
            found.add(Metric(title, "times", least, higher_is_better=True, kind=kind), gain)


def _measured(found: Figures, trials: Mapping[str, Sequence[Trial]]) -> None:
    title = "adaptiveload, 2 ranks"
    for name, runs in trials.items():
        for one in runs:
            found.add(
                Metric(f"{title}: time of an epoch on its slowest ranks, {name}", "seconds"),
                BUSY.value_of(one),
            )
            found.add(Metric(f"{title}: imbalance, {name}", "ratio"), one.result["imbalance"])
            found.add(
                Metric(f"{title}: peak memory of rank 0, {name}", "bytes"), one.result["peak_memory_bytes"]
            )
    for name in trials:
        if name in {EQUAL, AGAIN}:
            continue
        better = ratio(BUSY, trials[name], trials[EQUAL])
        _add_ratio(found, f"{title}: samples per second, {name}, times better than {EQUAL}", better)
    control = ratio(BUSY, trials[AGAIN], trials[EQUAL])
    metric = Metric(f"negative control: {AGAIN}, gain over {EQUAL}", "ratio - 1", 0.15, spread=str(control))
    found.add(metric, control.median - 1)
    every = [one for runs in trials.values() for one in runs]
    other = sum(one.result["samples"] != every[0].result["samples"] for one in every)
    name = "equality: adaptiveload, runs that use other samples than the first"
    found.add(Metric(name, "", 0, spread=f"{len(every)} runs"), other)
    tokens = sum(one.result["tokens"] != every[0].result["tokens"] for one in every)
    name = "equality: adaptiveload, runs with other tokens in an epoch than the first"
    found.add(Metric(name, "", 0, spread=f"{len(every)} runs"), tokens)


def _add_ratio(found: Figures, name: str, better: Ratio) -> None:
    found.add(Metric(name, "times", higher_is_better=True, spread=str(better)), better.median)


def _memory(found: Figures) -> None:
    """Add the rows of the fused LayerNorm-Modulate on this CPU: memory for the backward pass, and errors."""
    torch.manual_seed(0)
    given = [torch.randn(size).requires_grad_() for size in ((4, 1024, 256), (4, 256), (4, 256))]
    sizes = {}
    for name, operation in (("usual", plain_layernorm_modulate), ("fused", layernorm_modulate)):
        with saved_bytes() as count:
            operation(*given)
        sizes[name] = count()
        metric = Metric(f"adaptiveload, LayerNorm-Modulate on a CPU: bytes kept, {name}", "bytes")
        found.add(metric, sizes[name])
    share = Metric("adaptiveload, LayerNorm-Modulate on a CPU: bytes kept, fused over usual", "ratio", 0.6)
    found.add(share, sizes["fused"] / sizes["usual"])
    ours, theirs = layernorm_modulate(*given), plain_layernorm_modulate(*given)
    gradient = torch.randn_like(ours)
    pairs = [(ours, theirs)]
    pairs += list(
        zip(
            torch.autograd.grad(ours, given, gradient),
            torch.autograd.grad(theirs, given, gradient),
            strict=True,
        )
    )
    worst = max(
        float((one - other).detach().abs().max() / other.detach().abs().max()) for one, other in pairs
    )
    metric = Metric("adaptiveload, LayerNorm-Modulate on a CPU: largest relative error", "ratio", 1e-5)
    found.add(metric, worst)


def kernel_figures(results: Mapping[str, Any]) -> Figures:
    """Return the rows of the Triton kernels, from the result of kernel_timing.py on a machine with a GPU."""
    found = Figures()
    for row in results["rows"]:
        batch, length, size = row["shape"]
        title = f"adaptiveload, LayerNorm-Modulate on a GPU, {batch} x {length} x {size}"
        large = batch * length * size > 10**8
        error = Metric(f"{title}: largest error in fp32", "", 1e-5, spread=results["card"])
        found.add(error, row["error"])
        for name in ("usual", "compiled", "fused"):
            low, high = (1e6 * one for one in row[f"{name} spread"])
            spread = f"{low:.0f} to {high:.0f}"
            metric = Metric(f"{title}: forward and backward, {name}", "microseconds", spread=spread)
            found.add(metric, 1e6 * row[f"{name} seconds"])
            found.add(Metric(f"{title}: peak memory, {name}", "bytes"), row[f"{name} peak bytes"])
        for name in ("usual", "compiled"):
            target = 1.5 if large and name == "usual" else None
            metric = Metric(
                f"{title}: times faster than {name}",
                "times",
                target,
                higher_is_better=True,
                spread=f"medians of 9 rounds, {results['card']}",
            )
            found.add(metric, row[f"{name} seconds"] / row["fused seconds"])
    return found


def _claims(found: Figures) -> None:
    claims = {
        "imbalance before": (0.39, "ratio"),
        "imbalance after": (0.189, "ratio"),
        "throughput of Wan 2.1": (1.272, "times"),
        "peak-memory efficiency": (1.227, "times"),
    }
    for name, (value, unit) in claims.items():
        found.add(Metric(f"adaptiveload, paper: {name}", unit, kind="paper claim"), value)
