"""Tests of the rows of the bench of traces, without a job."""

from __future__ import annotations

import pytest
from e2e.bench.traces.cases import CASES, WIDE, Case
from e2e.bench.traces.interoperability import SAMPLES, reencode
from e2e.bench.traces.overhead import ROUND, add_rows
from e2e.bench.traces.predicted import fit_idle, wrong_pairs
from e2e.bench.traces.rank import NONE, OFF, ON, SLOWED, Report, Settings
from e2e.bench.traces.shape import Shape
from e2e.bench.traces.training import Run

from convoy_workloads.bench.figures import Figures

SMALL = Shape(width=8)


def job(**factors: float) -> Run:
    """Return a job whose blocks are longer by these factors, on a machine that gets slower and slower."""
    blocks = [
        [0.1 * (1 + number / 1000) * factors.get(kind, 1.0)] * 3 for number, kind in enumerate(ROUND * 4)
    ]
    return Run([Report(10, blocks, blocks, [9.0, 0.1], [0.2])], [])


@pytest.mark.parametrize(("on", "meets"), [(1.02, True), (1.05, False)])
def test_overhead_is_relative_to_the_same_round(on: float, meets: bool) -> None:
    found = Figures()
    add_rows(found, job(**{ON: on, OFF: 1.001, SLOWED: 1.06}), SMALL)
    rows = {row["metric"]: row for row in found.rows()}
    row = rows["width 8: recorder on: time of a step, more by"]
    assert row["value"] == pytest.approx(100 * (on - 1), abs=0.3)
    assert row["met"] is meets
    assert rows["width 8: recorder off: time of a step, more by"]["value"] == pytest.approx(0.1, abs=0.3)
    controls = [row for name, row in rows.items() if "negative control" in name]
    assert [row["met"] for row in controls] == [True] * 4
    assert controls[1]["value"] == pytest.approx(6, abs=0.3)
    assert rows["width 8: once a recording: to start"]["value"] == 100, "the first one imports parts of torch"


def test_a_control_that_finds_no_longer_steps_fails() -> None:
    found = Figures()
    add_rows(found, job(**{ON: 1.0}), SMALL)
    slowed = [row["met"] for row in found.rows() if "made 6 % longer" in row["metric"]]
    assert slowed == [False, False]


def test_each_round_has_all_kinds_of_blocks_about_its_middle() -> None:
    for kind in (ON, OFF, NONE):
        places = [place for place, one in enumerate(ROUND) if one == kind]
        assert sum(places) / len(places) == pytest.approx((len(ROUND) - 1) / 2, abs=0.7)


@pytest.mark.parametrize("ranks", [2, 4])
def test_idle_links_are_fitted(ranks: int) -> None:
    sizes = [4096, 65536, 2**20, 2**22]
    seconds = [(2 * (ranks - 1) * 30 + 2 * (ranks - 1) / ranks * size / 120) / 1e6 for size in sizes]
    fitted = fit_idle(sizes, seconds, ranks)
    assert (fitted.latency_us, fitted.bytes_per_us) == (pytest.approx(30), pytest.approx(120))


def test_pairs_in_the_wrong_order() -> None:
    one, two, three = CASES[:3]
    measured = {one: 1.0, two: 2.0, three: 3.0}
    assert wrong_pairs(measured, measured) == 0
    assert wrong_pairs({one: 5.0, two: 6.0, three: 5.5}, measured) == 1
    assert wrong_pairs({one: 3.0, two: 2.0, three: 1.0}, measured) == 3


def test_a_case_names_its_links_and_buckets() -> None:
    case = Case(WIDE, 0.5, 32)
    assert str(case) == "2 ranks, width 768, depth 8, batch 256, 32 MiB buckets, 500 Mbit/s"
    assert case.bucket_bytes == 32 * 2**20
    assert len(set(map(str, CASES))) == len(CASES) >= 5


def test_upstreams_samples_come_back_and_a_changed_byte_does_not() -> None:
    found = Figures()
    reencode(found, "samples", sorted(SAMPLES.glob("*.et*")))
    assert [row["value"] for row in found.rows()] == [12, 0, 0]
    assert all(row["met"] for row in found.rows())


def test_settings_come_back_from_their_text() -> None:
    given = Settings("/folder", Shape(width=8, bits_per_second=10), (NONE, ON), 3, (4, 8))
    assert Settings.of(given.as_json()) == given
