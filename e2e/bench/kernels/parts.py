"""The parts of the bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.tilefuse import rows as tilefuse

PARTS: Mapping[str, Callable[[Figures], None]] = {
    "tilefuse-kernels": lambda found: found.merge(tilefuse.kernel_figures()),
    "tilefuse-quality": lambda found: found.merge(tilefuse.quality_figures()),
    "tilefuse-serving": lambda found: found.merge(tilefuse.serving_figures()),
}
"""Functions that measure something and add its figures, by name."""
