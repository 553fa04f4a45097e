"""Reads how busy the pod's NVIDIA devices are, from the driver's library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
MAX_DEVICES = 64


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Devices:
    """The devices that this container sees. There are none without the driver's library."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._library: Any = None
        self._handles: list[ctypes.c_void_p] = []
        try:
            found = load(LIBRARY)
            if found.nvmlInit_v2() != 0:
                return
            count = ctypes.c_uint()
            if found.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
                return
            for number in range(min(count.value, MAX_DEVICES)):
                handle = ctypes.c_void_p()
                if found.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) == 0:
                    self._handles.append(handle)
            self._library = found
        except (OSError, AttributeError):
            return

    @property
    def count(self) -> int:
        """Return the number of devices."""
        return len(self._handles)

    def busy(self) -> float | None:
        """Return the fraction of the last moments in which an average device ran a kernel; None without a
        device that says so.
        """
        rates: list[float] = []
        for handle in self._handles:
            rate = _Utilization()
            if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rate)) == 0:
                rates.append(min(rate.gpu, 100) / 100)
        return sum(rates) / len(rates) if rates else None
