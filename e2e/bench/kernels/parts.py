"""The parts of the bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.aperon import rows as aperon
from convoy_workloads.engines.aperon.peers import REQUIREMENTS as INDEXES
from convoy_workloads.engines.tilefuse import rows as tilefuse
from e2e.bench.kit.packages import installed

PARTS: Mapping[str, Callable[[Figures], None]] = {
    "tilefuse-kernels": lambda found: found.merge(tilefuse.kernel_figures()),
    "tilefuse-quality": lambda found: found.merge(tilefuse.quality_figures()),
    "tilefuse-memory": lambda found: found.merge(tilefuse.memory_figures()),
    "tilefuse-serving": lambda found: found.merge(tilefuse.serving_figures()),
    "aperon-searches": lambda found: found.merge(aperon.search_figures(installed(INDEXES))),
    "aperon-schedule": lambda found: found.merge(aperon.schedule_figures()),
}
"""Functions that measure something and add its figures, by name."""
