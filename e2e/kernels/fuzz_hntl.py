"""Random cases for the kernel of vector search, with every array beside a guarded page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_workloads.kernels import hntl_cases, hntl_twin
from convoy_workloads.kernels.hntl import KERNEL, Functions, difference
from e2e.kernels.guarded import Guarded

KERNELS = (KERNEL,)
_BYTES = 4_000_000


class Fuzz:
    """The functions of each instruction set, and guarded memory for each array."""

    def __init__(self, functions: Mapping[str, Functions]) -> None:
        self._functions = functions
        self._memory: dict[str, Guarded] = {}

    def run(self, random: np.random.Generator) -> str:
        """Compare one random scan and one exact search. Return the difference, or an empty text."""
        arrays, scan = hntl_cases.random_scan(random)
        exact = hntl_cases.random_exact(random)
        at_end = bool(random.integers(4))
        guarded = {
            field.name: self._guarded(field.name, getattr(arrays, field.name), at_end)
            for field in dataclasses.fields(arrays)
        }
        arrays = dataclasses.replace(arrays, **guarded)
        scan = type(scan)(*(self._guarded(f"scan.{at}", one, at_end) for at, one in enumerate(scan)))
        exact = type(exact)(*(self._guarded(f"exact.{at}", one, at_end) for at, one in enumerate(exact)))
        expected = hntl_twin.scan(arrays, scan), hntl_twin.exact(exact)
        for name, functions in self._functions.items():
            found = functions.scan(arrays, scan), functions.exact(exact)
            for step, one, other in zip(("scan", "exact"), found, expected, strict=True):
                if wrong := difference(one, other):
                    return f"{name}, {step}, {arrays.rows} rows of {arrays.dimension}: {wrong}"
        return ""

    def _guarded(self, name: str, value: Any, at_end: bool) -> Any:
        """Return a copy of an array in guarded memory. Other values stay as they are."""
        if not isinstance(value, np.ndarray):
            return value
        memory = self._memory.setdefault(name, Guarded(_BYTES))
        copy: npt.NDArray[Any] = memory.array(value.dtype, value.size, at_end=at_end).reshape(value.shape)
        copy[...] = value
        return copy

    def close(self) -> None:
        """Drop the memory."""
        self._memory.clear()


def fuzz(_: str, functions: Mapping[str, Functions]) -> Fuzz:
    """Return the random cases for functions by instruction set."""
    return Fuzz(functions)
