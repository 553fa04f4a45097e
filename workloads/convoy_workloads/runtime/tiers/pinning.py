"""Pins the buffers of a rank that trains on a GPU. A GPU copies to other memory at a fraction of the speed of
its link, because the driver copies through a buffer of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from convoy_workloads.runtime.log import log_line

_PORTABLE = 1
"""Flag of cudaHostRegister: the memory is pinned for all GPUs of this process."""


def current_gpu() -> int | None:
    """Return the number of this thread's GPU; None if the program has not used a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.current_device())


def pin(area: memoryview, device: int) -> Callable[[], None] | None:
    """Pin memory. Return the function that undoes this; None if the driver refuses. Saves are slower then."""
    torch = sys.modules["torch"]
    address = torch.frombuffer(area, dtype=torch.uint8).data_ptr()
    # The thread of the caller may have no GPU yet. Without this context, it would choose the first one.
    with torch.cuda.device(device):
        runtime = torch.cuda.cudart()
        refused = int(runtime.cudaHostRegister(address, len(area), _PORTABLE))
    if refused:
        log_line(f"saves are slower, because the driver cannot pin {len(area)} bytes: CUDA error {refused}")
        return None

    def unpin() -> None:
        with torch.cuda.device(device):
            runtime.cudaHostUnregister(address)

    return unpin
