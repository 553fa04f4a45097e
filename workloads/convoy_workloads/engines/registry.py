"""The engines that come with Convoy, in the order of the documentation.

Importing this module imports neither torch nor the loop of an engine.
"""

from __future__ import annotations

from convoy_workloads.engines import gpt
from convoy_workloads.engines.entry import EngineEntry

ENGINES: tuple[EngineEntry, ...] = (
    gpt.ENGINE,
)  # fmt: skip
