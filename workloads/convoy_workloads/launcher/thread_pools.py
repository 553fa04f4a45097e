"""Sizes of the thread pools of numerical libraries. The zygote has one thread per pool. A fork gives each
pool its rank's own number of threads.
"""
# ruff: noqa: PTH123 - as few imports as a fresh interpreter

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

_SETTERS = tuple(
    prefix + "openblas_set_num_threads" + suffix for prefix in ("", "scipy_") for suffix in ("", "64_")
)

_openblas: list[Callable[[int], Any]] = []
"""Functions that set the number of threads of each loaded OpenBLAS library. They are needed because a
library reads its variables only once, when it is loaded.
"""


def find_openblas() -> None:
    """Find the OpenBLAS libraries that this process has loaded, such as numpy's. `resize` uses them."""
    import ctypes  # noqa: PLC0415 - torch is imported by now, and needs it too

    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        _openblas.extend(getattr(library, name) for name in _SETTERS if hasattr(library, name))


def resize(environment: Mapping[str, str]) -> None:
    """Give each thread pool the size that it would have in a fresh process with this environment."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch_threads(environment, torch.backends.mkl.is_available(), cores))
    cpus = len(os.sched_getaffinity(0))
    threads = min(_first_positive(environment, "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), cpus)
    for setter in _openblas if threads > 1 else ():
        setter(threads)


def torch_threads(environment: Mapping[str, str], mkl: bool, cores: Callable[[], int]) -> int:
    """Return the number of threads for torch. With MKL it is at most the number of cores, unless
    MKL_DYNAMIC is off.
    """
    if not mkl:
        return _first_positive(environment, "OMP_NUM_THREADS")
    threads = _first_positive(environment, "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    fixed = environment.get("MKL_DYNAMIC", "").lower() in ("false", "0")
    return threads if fixed or threads == 1 else min(threads, cores())


def cores() -> int:
    """Return the number of physical cores on which this process may run. The hardware threads of one core
    count once.
    """
    cpus = os.sched_getaffinity(0)
    try:
        return len({_siblings(cpu) for cpu in cpus})
    except OSError:
        return len(cpus)


def _siblings(cpu: int) -> str:
    with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
        return file.read()


def _first_positive(environment: Mapping[str, str], *names: str) -> int:
    """Return the value of the first of these variables that is a positive number; 1 if there is none."""
    values = (environment.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal() and int(value)), 1)
