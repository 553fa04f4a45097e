"""The differences between a rig and the usual one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Setup:
    """The nodes of a rig, and the flags of its control plane."""

    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More command-line flags, by name of the component."""
    labels: Callable[[int], Mapping[str, str]] = lambda index: {}
    """(number of a fake node) -> more labels of this node."""
    cpus: int = 64
    """Processors of each fake node."""
