"""Measures the speed of memory copies that are too large for the CPU's caches."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from convoy_agents.guard.sweep import memory
from convoy_agents.guard.sweep.probe import Measured, NotAvailable, sample_numbers

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_MIN_BUFFER, _MAX_BUFFER = 32 * 2**20, 960 * 2**20
"""Minimum and maximum bytes of each of the two buffers. The probe may use 2 GiB of memory."""


def run(accelerator: int, seconds: float) -> Measured:
    """Measure the speed of copies by one core in GB/s. Each copied byte counts once, although it is read
    and written.

    Each of the two buffers is twice as large as the core's last-level cache, within the limits above.
    Raises NotAvailable if the free memory is smaller than the two buffers, or if the cache is larger than a
    buffer.
    """
    cache = last_level_cache()
    size = min(_MAX_BUFFER, max(_MIN_BUFFER, 2 * cache))
    if cache > size:
        raise NotAvailable(
            f"the caches hold {cache >> 20} MiB, more than the largest buffer of {size >> 20} MiB"
        )
    if (left := memory.available()) is not None and left < 2 * size:
        raise NotAvailable(
            f"the probe needs 2 x {size >> 20} MiB, but the agent has only {left >> 20} MiB left"
        )
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    samples = []
    for _ in sample_numbers(seconds):
        began = time.perf_counter()
        np.copyto(target, source)
        samples.append(size / (time.perf_counter() - began) / 1e9)
    return Measured(samples)


def last_level_cache(caches: Path = _CACHES) -> int:
    """Return the bytes of the first core's largest cache; 0 if the kernel reports no cache."""
    sizes = [0]
    for entry in caches.glob("index*/size"):
        text = entry.read_text().strip()
        unit = _UNITS.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes)
