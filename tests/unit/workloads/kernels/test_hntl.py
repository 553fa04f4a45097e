"""Tests of the kernel `hntl_scan`: every instruction set has the bits of its numpy twin, for any threads."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from tests.cases import cases

from convoy_workloads.kernels import dispatch, hntl, hntl_arrays, hntl_cases, hntl_twin, instruction_sets
from convoy_workloads.kernels.build import compiler
from convoy_workloads.kernels.errors import InvalidInput
from convoy_workloads.kernels.hntl import KERNEL
from convoy_workloads.kernels.threads import ThreadPool

SETS = pytest.mark.parametrize("name", KERNEL.instruction_sets)


def functions(name: str) -> hntl.Functions:
    if instruction_sets.missing_flags(name, instruction_sets.cpu_flags()) or compiler() is None:
        pytest.skip(f"no compiler, or the CPU lacks {name}")
    return dispatch.select(KERNEL, name).function


@SETS
def test_an_instruction_set_has_the_bits_of_the_twin(name: str) -> None:
    assert hntl.compare(functions(name), cases(5), seed=1) == ""


@SETS
def test_threads_change_no_bit(name: str) -> None:
    found = functions(name)
    rng = np.random.default_rng(5)
    pool = ThreadPool(2)
    for _ in range(3):
        arrays, scan = hntl_cases.random_scan(rng)
        scan = scan._replace(queries=rng.standard_normal((150, arrays.dimension)).astype(np.float32))
        exact = hntl_cases.random_exact(rng)
        exact = exact._replace(queries=np.tile(exact.queries[:1], (90, 1)))
        for one, other in (
            (found.scan(arrays, scan), found.scan(arrays, scan, pool)),
            (found.exact(exact), found.exact(exact, pool)),
        ):
            assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))
    pool.close()


PROGRAM = """
import resource, sys
import numpy as np
from convoy_workloads.kernels import dispatch, hntl, hntl_arrays as h

rows = 320_000
arrays = h.HntlArrays(
    metric=0, dims=4, mean=np.zeros(4, np.float32), rotation=None, centroids=np.zeros((16, 16), np.float32),
    bases=np.zeros((1, 8, 16, 2), np.int16), offsets=np.zeros((1, 16), np.float32),
    scales=np.ones(1, np.float32), starts=np.array([0, rows]), blocks=np.array([0, rows // 32]),
    codes=np.full((rows // 32, 1, 32, 4), 128, np.uint8), biases=np.zeros((rows // 32, 32), np.float32),
    vectors=np.ones((rows, 4), np.float32), order=np.arange(rows, dtype=np.uint32),
)
norms = np.full(16, np.inf, np.float32)
norms[0] = 0
query, allowed = np.ones((1, 4), np.float32), np.full(rows // 32, 2**32 - 1, np.uint32)
request = h.ScanRequest(query, allowed, norms, 1, rows, 5)
scan = dispatch.select(hntl.KERNEL, sys.argv[1]).function.scan
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 40 * 2**20, resource.RLIM_INFINITY))
print(scan(arrays, request).rows.tolist())
"""


@SETS
def test_one_query_needs_the_memory_of_one_query(name: str) -> None:
    functions(name)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[0, 1, 2, 3, 4]]"


def test_a_difference_is_found_and_named() -> None:
    class Wrong:
        def scan(self, arrays: Any, request: Any, pool: Any = None) -> hntl_arrays.Found:
            found = hntl_twin.scan(arrays, request)
            found.distances[0, 0] = np.nextafter(found.distances[0, 0], np.float32(np.inf))
            return found

        def exact(self, request: Any, pool: Any = None) -> hntl_arrays.Found:
            return hntl_twin.exact(request)

    assert "distances[0, 0]" in hntl.compare(Wrong(), 3)


def test_the_twin_is_exact_search_if_all_are_candidates() -> None:
    rng = np.random.default_rng(2)
    for _ in range(10):
        arrays, scan = hntl_cases.random_scan(rng)
        norms = np.where(np.arange(len(scan.centroid_norms)) < arrays.grains, 0, np.inf).astype(np.float32)
        scan = scan._replace(probes=arrays.grains, candidates=10_000, centroid_norms=norms)
        sizes = np.diff(arrays.starts)
        lanes = np.concatenate(
            [np.arange(size) + 32 * first for size, first in zip(sizes, arrays.blocks, strict=False)]
        )
        bits = scan.allowed[lanes // 32] >> (lanes % 32).astype(np.uint32) & 1
        exact = hntl_arrays.ExactRequest(
            scan.queries, arrays.vectors, arrays.order, np.flatnonzero(bits), arrays.metric, scan.results
        )
        found, expected = hntl_twin.scan(arrays, scan), hntl_twin.exact(exact)
        assert found.rows.tolist() == expected.rows.tolist()
        assert found.distances.tobytes() == expected.distances.tobytes()
        assert (found.scanned == sizes.sum()).all()


def test_layouts_come_back() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(-9, 9, (7, 80)).astype(np.int16)
    assert np.array_equal(hntl_arrays.untiled(hntl_arrays.tiled(matrix), 80)[:7], matrix)
    assert np.array_equal(hntl_arrays.unpaired(hntl_arrays.paired(matrix[:6])), matrix[:6])
    codes = rng.integers(0, 255, (40, 12), np.uint8)
    blocks = hntl_arrays.blocked(codes)
    assert blocks.shape == (2, 3, 32, 4)
    assert np.array_equal(hntl_arrays.unblocked(blocks)[:40], codes)
    assert (hntl_arrays.unblocked(blocks)[40:] == 128).all()


@pytest.mark.parametrize(
    ("field", "change", "error"),
    [
        ("codes", lambda one: one[:-1], "codes: shape"),
        ("vectors", lambda one: one.astype(np.float64), "vectors: dtype"),
        ("vectors", lambda one: np.asfortranarray(np.tile(one, (1, 1))), "vectors: not C-contiguous"),
        ("starts", lambda one: one[::-1].copy(), "starts: not the first rows"),
        ("blocks", lambda one: one + 1, "blocks: not the first blocks"),
        ("bases", lambda one: one[:, :-1].copy(), "bases: shape"),
        ("dims", lambda one: one + 1, "dims: "),
        ("metric", lambda one: 2, "metric: 2"),
        ("order", lambda one: one.astype(np.int32), "order: dtype"),
    ],
)
def test_arrays_are_checked_at_the_door(field: str, change: Any, error: str) -> None:
    rng = np.random.default_rng(3)
    arrays, _ = hntl_cases.random_scan(rng)
    while arrays.rows < 2 or arrays.dimension < 2:
        arrays, _ = hntl_cases.random_scan(rng)
    with pytest.raises(InvalidInput, match=error):
        dataclasses.replace(arrays, **{field: change(getattr(arrays, field))})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"probes": 0}, "probes: 0"),
        ({"results": 0}, "results: 0"),
        ({"allowed": np.zeros(1_000, np.uint32)}, "allowed: shape"),
        ({"queries": np.zeros((1, 1_000), np.float32)}, "queries: shape"),
    ],
)
def test_requests_are_checked_at_the_door(change: dict[str, Any], error: str) -> None:
    arrays, scan = hntl_cases.random_scan(np.random.default_rng(3))
    for one in (KERNEL.twin, dispatch.select(KERNEL).function):
        with pytest.raises(InvalidInput, match=error):
            one.scan(arrays, scan._replace(**change))
    exact = hntl_cases.random_exact(np.random.default_rng(3))
    wrong = exact._replace(chosen=np.array([len(exact.vectors)]))
    with pytest.raises(InvalidInput, match="chosen: a row is not between"):
        dispatch.select(KERNEL).function.exact(wrong)
