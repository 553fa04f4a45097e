"""Tests of the parts of the GPU bench that need no GPU."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from e2e.bench.gpu import multiplexing
from e2e.bench.gpu.parts import PARTS
from e2e.bench.gpu.running import SavedFigures, read

from convoy_workloads.bench import figures
from convoy_workloads.bench.figures import Figures, Metric


@pytest.mark.parametrize("name", list(PARTS))
def test_every_part_can_be_found(name: str) -> None:
    assert callable(importlib.import_module(PARTS[name].module).add)


def test_a_part_that_is_killed_leaves_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    assert not read(path).rows()
    saved = SavedFigures(path)
    saved.add(Metric("a", "s", 2.0), 1.0)
    saved.add(Metric("a", "s", 2.0), None)
    assert read(path).rows() == saved.rows()
    saved.add_unmeasured(Metric("b", "s"), "no GPU")
    assert read(path).rows() == saved.rows()


def test_rows_of_a_model_keep_the_beginning_that_marks_a_check() -> None:
    found = Figures()
    for name in ("latency: engine", "equality: all results", "negative control: again"):
        found.add(Metric(name, "s"), 1.0)
    assert [row["metric"] for row in multiplexing._named(found, "small").rows()] == [
        "small: latency: engine",
        "equality: small, all results",
        "negative control: small, again",
    ]


def test_a_machine_is_described_with_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def smi(command: list[str], **_: object) -> SimpleNamespace:
        assert command[0] == "nvidia-smi"
        return SimpleNamespace(stdout="NVIDIA H200\nNVIDIA H200\n")

    monkeypatch.setattr(subprocess, "run", smi)
    assert figures.this_machine().endswith(", 2 x NVIDIA H200")


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "x NVIDIA" not in figures.this_machine()
