"""The engines that come with Convoy, in the order in which the documentation lists them.

Importing this module imports neither torch nor any engine's training loop.
"""

from __future__ import annotations

from convoy_workloads.engines import (
    activator,
    adaptiveload,
    aperon,
    aperon_index,
    casgd,
    experiment_analysis,
    experiment_simulation,
    fmplex,
    gpt,
    lm,
    load,
    odb,
    orchestration,
    prelort,
    sklearn,
    spotlight,
    tilefuse,
)
from convoy_workloads.engines.entry import EngineEntry

ENGINES: tuple[EngineEntry, ...] = (
    gpt.ENGINE,
    casgd.ENGINE,
    odb.ENGINE,
    adaptiveload.ENGINE,
    prelort.ENGINE,
    lm.ENGINE,
    tilefuse.ENGINE,
    fmplex.ENGINE,
    sklearn.ENGINE,
    aperon.ENGINE,
    aperon_index.ENGINE,
    activator.ENGINE,
    load.ENGINE,
    experiment_simulation.ENGINE,
    experiment_analysis.ENGINE,
    orchestration.ENGINE,
    spotlight.ENGINE,
)  # fmt: skip
