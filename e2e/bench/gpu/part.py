"""The parts of the bench. `python -m e2e.bench.gpu.part NAME FILE [small]` measures one of them."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Part:
    """A part of the bench."""

    module: str
    """Module whose function `add` adds the figures."""
    seconds: float
    """Time limit."""


PARTS = {
    "probes": Part("e2e.bench.gpu.probes", 150.0),
    "training": Part("e2e.bench.gpu.training", 140.0),
    "saving": Part("e2e.bench.gpu.saving", 120.0),
    "lm": Part("e2e.bench.gpu.language_model", 120.0),
    "fmplex": Part("e2e.bench.gpu.multiplexing", 230.0),
}


def main() -> None:
    """Measure a part, and write its figures to a file."""
    from e2e.bench.gpu.running import SavedFigures  # noqa: PLC0415 - `running` imports this module

    name, path, *rest = sys.argv[1:]
    importlib.import_module(PARTS[name].module).add(SavedFigures(Path(path)), small=bool(rest))


if __name__ == "__main__":
    main()
