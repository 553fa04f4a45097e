"""Tests of the rows for docs/bench/kernels.json, with times that are made up."""

from __future__ import annotations

import pytest
import torch
from e2e.bench.kernels.parts import PARTS

from convoy_workloads.bench.figures import Figures
from convoy_workloads.engines.tilefuse import kernel_timing, rows
from convoy_workloads.engines.tilefuse.kernel_timing import Problem
from convoy_workloads.engines.tilefuse.packed_linear import KERNELS
from convoy_workloads.kernels import dispatch
from convoy_workloads.kernels.dispatch import Selection

TIMES = {
    "w4a16": [1.0, 2.0, 1.0],
    "w8a16": [2.0, 4.0, 2.0],
    "torch bf16": [3.0, 6.0, 3.0],
    "torch int8": [1.5, 3.0, 1.5],
    "torch int4": [0.9, 1.8, 0.9],
}
SETS = {"w4a16": "avx512bf16", "w8a16": "avx512"}


def row(found: Figures, name: str) -> dict[str, object]:
    return next(one for one in found.rows() if one["metric"].endswith(name))


def test_ratios_compare_values_of_one_round_and_name_both_sides() -> None:
    found = Figures()
    rows.add_times(
        found, Problem(4096, 4096, 1), {name: [1e-3 * x for x in one] for name, one in TIMES.items()}, SETS
    )
    bf16 = row(found, "w4a16, times faster than torch bf16")
    assert (bf16["value"], bf16["target"], bf16["met"]) == (3.0, 2.6, True)
    assert str(bf16["spread"]).startswith("avx512bf16: 1.00 ms, torch bf16 3.00 ms; ")
    better = row(found, "w4a16, times faster than the better of torch int4 and int8")
    assert (better["value"], better["met"]) == (0.9, False)
    assert row(found, "w8a16, times faster than torch bf16")["met"] is False
    assert row(found, "4096 x 4096, 1 row: torch int4")["value"] == 0.9


def test_many_rows_must_beat_the_fastest_of_torch() -> None:
    found = Figures()
    rows.add_times(found, Problem(64, 64, 32), TIMES, SETS)
    fastest = row(found, "w4a16, times faster than the fastest of torch")
    assert (fastest["value"], fastest["target"], fastest["met"]) == (0.9, 1.0, False)
    assert row(found, "w4a16, times faster than torch bf16")["target"] is None


def test_without_a_kernel_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def twin(kernel: object) -> Selection[object]:
        return Selection("w4a16", dispatch.TWIN, kernel)

    monkeypatch.setattr(dispatch, "select", twin)
    monkeypatch.setattr(rows, "times", lambda *_: pytest.fail("there is no kernel"))
    monkeypatch.setattr(rows, "ERROR_SHAPES", ())
    monkeypatch.setattr(rows, "_add_exactness", lambda *_: None)
    found = rows.kernel_figures(((256, 128),)).rows()
    assert [one["kind"] for one in found[:2]] == [
        "not measured: no kernel for this processor, or no compiler"
    ] * 2
    assert [one["met"] for one in found[:2]] == [None, None]


@pytest.mark.parametrize("scheme", KERNELS)
def test_the_contenders_compute_products_of_the_same_shape(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_timing, "WEIGHT_BYTES", 100_000)
    problem = Problem(128, 256, 2)
    contenders = kernel_timing._contenders(problem, torch.randn(2, 256).bfloat16(), 1)
    assert set(contenders) == set(TIMES)
    assert all(calls[0]().shape == (2, 128) for calls in contenders.values())  # type: ignore[attr-defined]
    assert len(contenders["w4a16"]) > len(contenders["torch bf16"]) >= 2
    assert kernel_timing.largest_error(scheme, problem) < 1e-6
    assert kernel_timing.differing_threads(scheme, problem, (1, 2)) == 0


def test_the_parts_have_names_of_their_engine() -> None:
    assert [name for name in PARTS if name.startswith("tilefuse-")] == [
        "tilefuse-kernels",
        "tilefuse-quality",
        "tilefuse-memory",
        "tilefuse-serving",
    ]
