"""`python -m e2e.bench.gpu.part NAME FILE [small]` measures one part of the bench."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from e2e.bench.gpu.parts import PARTS
from e2e.bench.gpu.running import SavedFigures


def main() -> None:
    """Measure a part, and write its figures to a file."""
    name, path, *rest = sys.argv[1:]
    importlib.import_module(PARTS[name].module).add(SavedFigures(Path(path)), small=bool(rest))


if __name__ == "__main__":
    main()
