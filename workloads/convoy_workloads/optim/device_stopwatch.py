"""The seconds that a device needs for a part of a program."""

from __future__ import annotations

import time
from typing import Any

import torch


class DeviceStopwatch:
    """A context whose time counts.

    A GPU runs behind the program, so events of the GPU measure the time, and `read` adds it once the GPU has
    passed them.
    """

    def __init__(self, device: torch.device) -> None:
        self.seconds = 0.0
        """Seconds in the context; on a GPU, up to the last `read`."""
        self._device = device
        self._began = 0.0
        self._events: tuple[Any, Any] | None = None
        self._unread = False
        if device.type == "cuda":
            new: Any = torch.cuda.Event
            self._events = new(enable_timing=True), new(enable_timing=True)

    def __enter__(self) -> None:
        if self._events:
            self._events[0].record(torch.cuda.current_stream(self._device))
        else:
            self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if self._events:
            self._events[1].record(torch.cuda.current_stream(self._device))
            self._unread = True
        else:
            self.seconds += time.perf_counter() - self._began

    def read(self) -> None:
        """Add the time of the last context on a GPU. Wait until the GPU has passed its end."""
        if self._events and self._unread:
            self._events[1].synchronize()
            self.seconds += self._events[0].elapsed_time(self._events[1]) / 1e3
            self._unread = False
