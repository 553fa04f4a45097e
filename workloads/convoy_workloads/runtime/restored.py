"""The result of a restore: which checkpoint a run started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.runtime.generation import Generation


@dataclass(frozen=True)
class Restored:
    """The checkpoint that a run started with, or a fresh start."""

    step: int = 0
    """Number of steps that the restored state contains; 0 after a fresh start."""
    generation: Generation | None = None
    """The generation that was loaded; None after a fresh start."""
    exact: bool = True
    """True if the rest of the run computes exactly the same bits as a run that was never interrupted."""
    extra: Mapping[str, Any] = field(default_factory=dict)
