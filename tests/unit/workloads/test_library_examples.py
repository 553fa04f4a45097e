"""The examples of `convoy.data`, `convoy.optim` and `convoy.federated` run, and train."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example_of_online_batches_learns_from_all_texts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    joined, threads = dist.init_process_group, torch.get_num_threads()

    def join(backend: str) -> None:
        """Form a group of one rank, with a file instead of a port."""
        joined(backend, init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)

    monkeypatch.setattr(dist, "init_process_group", join)
    torch.set_num_threads(1)  # Threads of such small operations only wait for each other.
    try:
        ran = runpy.run_path(str(EXAMPLES / "online_batches.py"))
    finally:
        torch.set_num_threads(threads)
    assert ran["loss"] < 1 and ran["batches"].epoch == 2 and not ran["batches"].quarantined


def test_the_example_of_casgd_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert runpy.run_path(str(EXAMPLES / "casgd.py"))["loss"] < 0.3


def test_the_example_of_prefix_lora_learns_with_every_rank() -> None:
    losses = runpy.run_path(str(EXAMPLES / "prefix_lora.py"))["losses"]
    assert losses[8] < losses[4] < losses[2] < 16
