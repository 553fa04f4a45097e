"""The parts of the bench: one for each engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.adaptiveload import kernel_rows, kernel_timing
from convoy_workloads.engines.adaptiveload import rows as adaptiveload
from convoy_workloads.engines.casgd import gpu_training, gram_timing
from convoy_workloads.engines.casgd import rows as casgd
from convoy_workloads.engines.gpt import expert_rows
from convoy_workloads.engines.odb import rows as odb
from convoy_workloads.engines.odb.package_batches import REQUIREMENTS as ODB
from convoy_workloads.engines.prelort import rows as prelort
from convoy_workloads.engines.prelort.flower import REQUIREMENTS as FLOWER
from e2e.bench.kit.packages import installed


def _casgd_gpu(found: Figures) -> None:
    found.merge(gram_timing.figures())
    found.merge(gpu_training.figures())


PARTS: Mapping[str, Callable[[Figures], None]] = {
    "odb": lambda found: found.merge(odb.figures(installed(ODB))),
    "adaptiveload": lambda found: found.merge(adaptiveload.figures()),
    "casgd": lambda found: found.merge(casgd.figures()),
    "prelort": lambda found: found.merge(prelort.digits_figures(installed(FLOWER))),
    "prelort-text": lambda found: found.merge(prelort.text_figures(installed(FLOWER))),
    "gpt-experts": lambda found: found.merge(expert_rows.figures()),
}
"""Functions that measure an engine and add its figures, by name of the engine or of its task."""
GPU_PARTS: Mapping[str, Callable[[Figures], None]] = {
    "adaptiveload-gpu": lambda found: found.merge(kernel_rows.kernel_figures(kernel_timing.measure())),
    "casgd-gpu": _casgd_gpu,
}
"""Parts that run only on a machine with a GPU. Elsewhere their rows stay as they are."""
