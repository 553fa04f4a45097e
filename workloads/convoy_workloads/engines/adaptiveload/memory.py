"""Peak memory: of a whole training, and of a part of a program."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

import torch

from convoy_workloads.runtime.process_status import status_bytes

_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Linux sets the peak of a process (VmHWM) to its present memory after this text (proc(5))."""


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak of this rank since its start: of the process on a CPU, of the tensors on a GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class PeakGrowth:
    """The peak of this process's memory from now on, beyond its memory now. It needs Linux.

    Freed memory goes back to the system first. Otherwise later tensors would use it again, and their memory
    would not show.
    """

    def __init__(self) -> None:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only the GNU C library has it
        if trim is not None:
            trim(0)
        _RESET.write_text(_RESET_PEAK)
        self._before = status_bytes("VmRSS")

    def bytes(self) -> int:
        """Return the growth until now."""
        return status_bytes("VmHWM") - self._before
