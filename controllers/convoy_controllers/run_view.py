"""Views of the facts about a run that its ranks measure for advice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FolderView:
    """A data volume of a pod, as its first rank saw it."""

    path: str
    files: int
    median_bytes: int


@dataclass(frozen=True, slots=True)
class RunView:
    """Facts that the first rank of a pod measures for advice."""

    folders: tuple[FolderView, ...] = ()
    cpu_seconds: float = 0.0
    """Processor seconds that the rank's container used over `seconds`."""
    accelerator_seconds: float = 0.0
    """Seconds for which an average accelerator of the pod was busy within `seconds`."""
    accelerators: int = 0
    """Number of the pod's accelerators that were measured."""
    seconds: float = 0.0
    """Seconds of the measurement, from the first step on; 0 before."""
    python: str = ""
    """Version of Python that runs the rank."""
    torch: str = ""
    """Version of torch; empty if the program has not loaded it."""
