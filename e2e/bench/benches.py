"""List of all benches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bench:
    """A bench, which is a subcommand of `python -m e2e.bench`."""

    name: str
    module: str
    """Module whose function `run` is the command. The parameters of `run` are the options."""


BENCHES = (
    Bench("scale", "e2e.bench.scale.command"),
    Bench("survival", "e2e.bench.survival.command"),
    Bench("soak", "e2e.bench.soak.command"),
    Bench("serving", "e2e.bench.serving.command"),
    Bench("autoscaling", "e2e.bench.autoscaling.command"),
    Bench("placement", "e2e.bench.placement.command"),
    Bench("advice", "e2e.bench.advice.command"),
    Bench("experiments", "e2e.bench.experiments.command"),
    Bench("spotlight", "e2e.bench.spotlight.command"),
    Bench("traces", "e2e.bench.traces.command"),
    Bench("engines-training", "e2e.bench.engines_training.command"),
    Bench("kernels", "e2e.bench.kernels.command"),
    Bench("schedules", "e2e.bench.tiercheck.schedules_command"),
    Bench("guard-sweep", "e2e.bench.guard.sweep_command"),
    Bench("dashboard", "e2e.bench.dashboard.command"),
    Bench("tiercheck", "e2e.bench.tiercheck.command"),
    Bench("gpu", "e2e.bench.gpu.command"),
    Bench("guard", "e2e.bench.guard.command"),
)
