"""The rows of eight ranks: a calibrated simulation from steps that are measured here."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from convoy.data import BucketOptions
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.engines.adaptiveload.model import DiT
from convoy_workloads.engines.adaptiveload.params import Params
from convoy_workloads.engines.adaptiveload.simulation import Setting, Simulated, simulate
from convoy_workloads.engines.adaptiveload.training import loss_of, own_seconds
from convoy_workloads.packing.step_cost import Timing, fit_linear_quadratic, fit_power_law, mape

SEEDS, WORLD = 7, 8
BUCKETS = (128, 256, 512, 1024, 2048, 4096)
BUDGET, MEMORY = 4096, 12_288
"""Tokens of an equal-token batch, and the memory limit of the method, which must be larger: with equal
limits, the compute limit has no effect.
"""
SAMPLES = 6144
WINDOW = BucketOptions(memory_tokens=BUDGET).window
"""Samples of a window: the loader's default."""
WINDOWS = (WINDOW, 2 * WINDOW, 6 * WINDOW)
"""Windows of the settings with sorted dealing."""
EQUAL = "equal tokens"
SETTINGS: Mapping[str, Setting] = {
    EQUAL: Setting(rule="equal_tokens", memory_tokens=BUDGET),
    f"equal tokens with {MEMORY} tokens": Setting(rule="equal_tokens", memory_tokens=MEMORY),
    "paper's rule, fitted p": Setting(rule="paper", memory_tokens=MEMORY, compute_tokens=BUDGET),
    "paper's rule, p = 2": Setting(rule="paper", memory_tokens=MEMORY, compute_tokens=BUDGET, exponent=2.0),
    "measured cost": Setting(rule="measured", memory_tokens=MEMORY, compute_tokens=BUDGET),
    f"measured cost with {BUDGET} tokens": Setting(
        rule="measured", memory_tokens=BUDGET, compute_tokens=BUDGET
    ),
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


def add_rows(found: Figures) -> None:
    """Measure steps, simulate all settings, and add the rows."""
    timings = profiled()
    _add_fits(found, timings)
    largest = min(one * max(t.batch for t in timings if t.tokens == one) for one in BUCKETS)
    metric = Metric(
        "adaptiveload, cost of a step: tokens of the largest measured batch",
        "tokens",
        MEMORY,
        higher_is_better=True,
        spread="the least of all buckets",
    )
    found.add(metric, largest)
    base = _runs(SETTINGS[EQUAL], timings, WINDOW)
    for name, setting in SETTINGS.items():
        for window in WINDOWS if setting.sort else (WINDOW,):
            title = f"{name}, window of {window}" if setting.sort else name
            _add_setting(found, name, title, _runs(setting, timings, window), base)


@contextmanager
def measuring() -> Iterator[None]:
    """Use one thread and random numbers of its own, and restore both afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(threads)


def batches_to_measure(tokens: int) -> list[int]:
    """Return the samples of the batches of a bucket that are measured: from one to as many as fit."""
    limits = (BUDGET // 2, BUDGET, 2 * BUDGET, MEMORY)
    return sorted({1, *(max(1, one // tokens) for one in limits)})


def profiled() -> list[Timing]:
    """Measure steps of one block of width 192, as processor time of one thread. Each time is the faster of
    two, after a first one.
    """
    params = Params(layers=1, width=192, buckets=list(BUCKETS), memory_tokens=MEMORY)
    found, device = [], torch.device("cpu")
    with measuring():
        model = DiT(params)
        for tokens in BUCKETS:
            for batch in batches_to_measure(tokens):
                times = []
                for _ in range(3):
                    before = own_seconds(device)
                    videos = torch.zeros(batch, tokens, params.channels)
                    loss_of(model, videos, (0,), device).backward()  # type: ignore[no-untyped-call]
                    times.append(own_seconds(device) - before)
                found.append(Timing(batch, tokens, min(times[1:])))
    return found


def _runs(setting: Setting, timings: Sequence[Timing], window: int) -> list[Simulated]:
    return [simulate(setting, timings, _mix(seed), WORLD, window, seed) for seed in range(SEEDS)]


def _mix(seed: int) -> list[int]:
    """Return the sizes of the samples. Short samples are more, but long ones have more tokens in all."""
    drawn = random.Random(seed)  # noqa: S311 - a simulation
    weights = [1 / tokens**0.5 for tokens in BUCKETS]
    return drawn.choices(BUCKETS, weights, k=SAMPLES)


def _add_fits(found: Figures, timings: Sequence[Timing]) -> None:
    power, mixed = fit_power_law(timings), fit_linear_quadratic(timings)
    sizes, title = f"{len(timings)} sizes", "adaptiveload, cost of a step"
    found.add(Metric(f"{title}: fitted exponent p", "", spread=sizes), power.exponent)
    error = Metric(f"{title}: mean relative error, power law", "ratio", spread=sizes)
    found.add(error, mape(power, timings))
    error = Metric(f"{title}: mean relative error, linear and quadratic", "ratio", 0.15, spread=sizes)
    found.add(error, mape(mixed, timings))
    for tokens in (BUCKETS[0], BUCKETS[-1]):
        metric = Metric(f"{title}: local exponent at {tokens} tokens", "", spread=sizes)
        found.add(metric, mixed.local_exponent(tokens))


def _add_setting(
    found: Figures, name: str, title: str, runs: Sequence[Simulated], base: Sequence[Simulated]
) -> None:
    kind, (limit, least) = "calibrated simulation", TARGETS.get(name, (None, None))
    before = f"adaptiveload, {WORLD} ranks"
    gains = [other.seconds_per_sample / one.seconds_per_sample for one, other in zip(runs, base, strict=True)]
    if name == CONTROL:
        control = "negative control: adaptiveload, compute limit without effect, gain over equal tokens"
        for gain in gains:
            found.add(Metric(control, "ratio - 1", 0.05, kind=kind, aim="within"), gain - 1)
        return
    for one in runs:
        found.add(Metric(f"{before}: imbalance, {title}", "ratio", limit, kind=kind), one.imbalance)
    most = max(tokens * size for one in runs for tokens, size in one.sizes.items())
    found.add(Metric(f"{before}: tokens of the largest batch, {title}", "tokens", kind=kind), most)
    if name == EQUAL:
        return
    metric = Metric(
        f"{before}: samples per second, {title}, times better than equal tokens",
        "times",
        least,
        higher_is_better=True,
        kind=kind,
    )
    for gain in gains:
        found.add(metric, gain)
