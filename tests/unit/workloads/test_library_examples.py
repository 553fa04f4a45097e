"""The examples of `convoy.optim` and `convoy.federated` run, and train."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example_of_casgd_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert runpy.run_path(str(EXAMPLES / "casgd.py"))["loss"] < 0.3


def test_the_example_of_prefix_lora_learns_with_every_rank() -> None:
    losses = runpy.run_path(str(EXAMPLES / "prefix_lora.py"))["losses"]
    assert losses[8] < losses[4] < losses[2] < 16
