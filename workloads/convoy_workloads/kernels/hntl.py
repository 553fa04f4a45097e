"""The kernel `hntl_scan`: HNTL vector search over the arrays of an index, as one C call per batch of queries.

The library has two functions. `scan` ranks the grains of an index, projects each query into the nearest ones,
scans their blocks of codes, and computes exact distances for the best candidates. `exact` compares queries
with chosen rows. All results have the same bits as the numpy twin's (hntl_twin.py), for every instruction set
and number of threads.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from convoy_workloads.kernels import hntl_cases, hntl_twin
from convoy_workloads.kernels.ctypes_kernel import kernel_function
from convoy_workloads.kernels.dispatch import COMPARED_SHAPES, Kernel
from convoy_workloads.kernels.hntl_arrays import (
    Array,
    ExactRequest,
    Found,
    HntlArrays,
    ScanRequest,
    check_exact,
    check_scan,
)
from convoy_workloads.kernels.threads import ThreadPool

_CHUNK = 32
"""Queries that share the reads of grains. A pool of threads splits a batch at multiples of this number."""
_INDEX_SIZES = ("dimension", "frame", "dims", "grains", "metric")
_INDEX_ARRAYS = (
    "mean", "rotation", "centroids", "bases", "offsets", "scales", "starts", "blocks", "codes", "biases",
    "vectors", "order",
)  # fmt: skip


def _numbers(*names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_int64) for name in names]


def _addresses(*names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_void_p) for name in names]


class _Index(ctypes.Structure):
    _fields_ = (*_numbers(*_INDEX_SIZES), *_addresses(*_INDEX_ARRAYS))


class _Scan(ctypes.Structure):
    _fields_ = (
        *_addresses("index", "centroid_norms", "allowed", "queries"),
        *_numbers("probes", "candidates", "results"),
        *_addresses("distances", "rows", "scanned"),
    )


class _Exact(ctypes.Structure):
    _fields_ = (
        *_numbers("dimension", "metric", "count"),
        *_addresses("chosen", "vectors", "order", "queries"),
        *_numbers("results"),
        *_addresses("distances", "rows"),
    )


class Functions(Protocol):
    """The functions of the kernel."""

    def scan(self, arrays: HntlArrays, request: ScanRequest, pool: ThreadPool | None = None) -> Found:
        """Return the nearest rows among the best candidates of the probed grains."""

    def exact(self, request: ExactRequest, pool: ThreadPool | None = None) -> Found:
        """Return the nearest of the chosen rows."""


class _Twin:
    def scan(self, arrays: HntlArrays, request: ScanRequest, pool: ThreadPool | None = None) -> Found:
        return hntl_twin.scan(arrays, request)

    def exact(self, request: ExactRequest, pool: ThreadPool | None = None) -> Found:
        return hntl_twin.exact(request)


@dataclass(frozen=True, slots=True)
class _Library:
    scan_function: Any
    exact_function: Any

    def scan(self, arrays: HntlArrays, request: ScanRequest, pool: ThreadPool | None = None) -> Found:
        check_scan(arrays, request)
        found = _outputs(len(request.queries), request.results)
        # `index` stays referenced until the call has ended.
        index = _index(arrays)
        arguments = _Scan(
            ctypes.addressof(index),
            *(_address(array) for array in (request.centroid_norms, request.allowed, request.queries)),
            request.probes,
            request.candidates,
            request.results,
            *(_address(array) for array in found),
        )
        _run(self.scan_function, arguments, len(request.queries), pool)
        if found.scanned.min(initial=0) < 0:
            raise MemoryError("no memory for the candidates of a search: ask for fewer candidates")
        return found

    def exact(self, request: ExactRequest, pool: ThreadPool | None = None) -> Found:
        check_exact(request)
        found = _outputs(len(request.queries), request.results)
        chosen, vectors = request.chosen, request.vectors
        count = len(vectors) if chosen is None else len(chosen)
        arguments = _Exact(
            vectors.shape[1],
            request.metric,
            count,
            None if chosen is None else _address(chosen),
            *(_address(array) for array in (vectors, request.order, request.queries)),
            request.results,
            _address(found.distances),
            _address(found.rows),
        )
        _run(self.exact_function, arguments, len(request.queries), pool)
        if (found.rows < -1).any():
            raise MemoryError("no memory for the results of a search: ask for fewer results")
        found.scanned[:] = count
        return found


def _run(function: Any, arguments: ctypes.Structure, items: int, pool: ThreadPool | None) -> None:
    if pool is None or items <= _CHUNK:
        function(ctypes.byref(arguments), 0, items)
    else:
        pool.run(function, arguments, items, multiple=_CHUNK)


def _address(array: Array) -> int:
    """Return the address of an array's data, faster than `array.ctypes.data`."""
    found: int = array.__array_interface__["data"][0]
    return found


def _outputs(items: int, results: int) -> Found:
    return Found(
        np.empty((items, results), np.float32),
        np.empty((items, results), np.int64),
        np.zeros(items, np.int64),
    )


_indexes: WeakKeyDictionary[HntlArrays, _Index] = WeakKeyDictionary()


def _index(arrays: HntlArrays) -> _Index:
    """Return the C struct of an index, made once."""
    found = _indexes.get(arrays)
    if found is None:
        addresses = (getattr(arrays, name) for name in _INDEX_ARRAYS)
        found = _Index(
            *(getattr(arrays, name) for name in _INDEX_SIZES),
            *(None if array is None else _address(array) for array in addresses),
        )
        _indexes[arrays] = found
    return found


def _bind(loaded: ctypes.CDLL) -> Functions:
    return _Library(kernel_function(loaded, "convoy_hntl_scan"), kernel_function(loaded, "convoy_hntl_exact"))


def compare(functions: Functions, shapes: int = COMPARED_SHAPES, seed: int = 0) -> str:
    """Compare functions with the twin for random shapes. Return the first difference, or an empty text."""
    rng = np.random.default_rng(seed)
    for number in range(shapes):
        arrays, scan = hntl_cases.random_scan(rng)
        if wrong := difference(functions.scan(arrays, scan), hntl_twin.scan(arrays, scan)):
            shape = {name: getattr(arrays, name) for name in (*_INDEX_SIZES, "rows")}
            return f"scan, shape {number} ({shape}, {len(scan.queries)} queries): {wrong}"
        exact = hntl_cases.random_exact(rng)
        if wrong := difference(functions.exact(exact), hntl_twin.exact(exact)):
            return f"exact, shape {number} ({exact.vectors.shape}, {len(exact.queries)} queries): {wrong}"
    return ""


def difference(found: Found, expected: Found) -> str:
    """Return the first value that has other bits."""
    pairs: list[tuple[str, Array, Array]] = [
        (name, getattr(found, name), getattr(expected, name)) for name in Found._fields
    ]
    for name, one, other in pairs:
        bits = np.int32 if one.dtype.kind == "f" else np.int64
        different = np.argwhere(one.view(bits) != other.view(bits))
        if len(different):
            at = tuple(int(i) for i in different[0])
            return f"{name}{list(at)} is {getattr(found, name)[at]}, not {getattr(expected, name)[at]}"
    return ""


KERNEL: Kernel[Functions] = Kernel("hntl_scan", ("avx512vnni", "avx2"), _bind, compare, _Twin())
"""The kernel. `dispatch.select(KERNEL).function` has its functions."""
