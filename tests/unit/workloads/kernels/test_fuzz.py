"""A few of the random cases of `make kernels-fuzz`, and a proof that they find faults."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from e2e.kernels import fuzz
from e2e.kernels.fuzz_weight_only import EMULATED, Fuzz
from e2e.kernels.guarded import Guarded
from tests.cases import cases

from convoy_workloads.kernels import build, w4a16
from convoy_workloads.kernels.packing import PackedWeights
from convoy_workloads.kernels.threads import ThreadPool
from convoy_workloads.kernels.weight_only import FLOAT32, Matrix


@pytest.mark.skipif(build.compiler() is None, reason="no C++ compiler")
def test_random_cases_agree_with_the_twins() -> None:
    assert len(fuzz.run(cases(200), seed=3)) >= 2


def test_random_cases_find_a_write_between_the_rows() -> None:
    def product(packed: PackedWeights, x: Matrix, y: Matrix, pool: ThreadPool) -> None:
        w4a16.KERNEL.twin(packed, x, y, pool)
        if y.type == FLOAT32 and y.rows > 1 and y.stride > packed.outputs:
            ctypes.c_float.from_address(y.address + 4 * packed.outputs).value = 0.0

    suite = Fuzz("w4a16", {"broken": product})
    found = [suite.run(np.random.default_rng(seed)) for seed in range(50)]
    suite.close()
    assert any("wrote between the rows" in one for one in found)


def test_guarded_memory_ends_beside_its_guards() -> None:
    memory = Guarded(10_000)
    for at_end in (True, False):
        array = memory.array(np.float32, 33, at_end=at_end)
        array[:] = 1.0
        edge = array.ctypes.data + (array.nbytes if at_end else 0)
        assert edge % 4096 == 0
    with pytest.raises(ValueError, match="more than the memory's"):
        memory.array(np.uint8, 20_000)


@pytest.mark.parametrize(
    ("missing", "suffices"),
    [
        ({"amx_tile", "amx_bf16"}, True),
        ({"amx_tile"}, True),
        ({"amx_tile", "amx_bf16", "avx512f"}, False),
        ({"avx2", "amx_tile"}, False),
    ],
)
def test_emulated_tiles_still_need_the_rest_of_the_instruction_set(missing: set[str], suffices: bool) -> None:
    assert EMULATED["amx"].suffices(missing) is suffices
