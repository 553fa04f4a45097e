"""Tests of the re-computation of an Experiment with figures that JSON writes in another way."""

from __future__ import annotations

import pytest
from tests.unit.workloads.experiments.plans import blocks, plan, shifted

from convoy_crds.experiment_hash import digest
from convoy_workloads.experiments.artefact import result_files
from convoy_workloads.experiments.verify import verify


@pytest.mark.parametrize("scale", [1e15, 2e16, 1.7e18, 1e20, 1e22])
def test_figures_above_the_whole_numbers_of_json_verify(scale: float) -> None:
    document, small = plan(), shifted(3)
    rows = blocks(document, lambda block, arm, name: scale * (small(block, arm, name) or 0.0))
    result, files = result_files(document, rows, [])
    assert verify(files, digest(result.document())) == []


def test_figures_of_minus_zero_verify() -> None:
    document = plan()
    result, files = result_files(document, blocks(document, lambda *_: -0.0), [])
    assert verify(files, digest(result.document())) == []
