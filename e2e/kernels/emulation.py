"""The emulation of CPU features that a machine lacks, so that kernels for them can be tried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Emulation:
    """Compiler flags that replace some features of a CPU by ordinary code."""

    compiler_flags: tuple[str, ...]
    replaced: frozenset[str]
    """Flags of /proc/cpuinfo that a CPU then does not need."""

    def suffices(self, missing: Iterable[str]) -> bool:
        """Return True if a CPU that lacks the flags `missing` can run the emulated code."""
        return self.replaced.issuperset(missing)
