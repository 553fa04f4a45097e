"""All benches, one line each. A bench's modules are imported only when it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bench:
    """A subcommand of `python -m e2e.bench`."""

    name: str
    module: str
    """The module whose function `run` is the command; its parameters are the options."""


BENCHES = (
    Bench("scale", "e2e.bench.scale.command"),
    Bench("survival", "e2e.bench.survival.command"),
    Bench("soak", "e2e.bench.survival.soak_command"),
    Bench("schedules", "e2e.bench.tiercheck.schedules_command"),
    Bench("guard-sweep", "e2e.bench.guard.sweep_command"),
    Bench("dashboard", "e2e.bench.dashboard.command"),
    Bench("tiercheck", "e2e.bench.tiercheck.command"),
    Bench("guard", "e2e.bench.guard.command"),
)
