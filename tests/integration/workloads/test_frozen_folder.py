"""Tests of ranks that save their checkpoints to a folder whose file system hangs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.integration import freezing

import convoy

HANGS, RESPONDS = 3, 7
"""Steps at which the file system hangs and responds again."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("mounts need root")
    with freezing.disk(tmp_path) as made:
        monkeypatch.setenv("CONVOY_CHECKPOINT_DIR", str(made))
        monkeypatch.setenv("CONVOY_CHECKPOINT_SECONDS", "0.000001")
        yield made


def committed(disk: Path) -> set[int]:
    """Return the steps of the committed generations in the folder."""
    return {int(path.parent.name.rpartition("-")[2]) for path in disk.glob("gen-*/COMMIT.json")}


def test_steps_continue_while_a_disk_hangs_and_the_save_is_committed_later(disk: Path) -> None:
    model, then, saves = torch.nn.Linear(64, 64), torch.empty(0), {}
    with contextlib.ExitStack() as hanging, convoy.join() as job:
        job.restore(model=model)
        for step in job.steps(RESPONDS):
            if step == RESPONDS:
                assert HANGS not in committed(disk)
                hanging.close()
                job._checkpoints.settle()
                assert HANGS in committed(disk)
                break
            with torch.no_grad():
                model.weight.add_(0.1)
            if step == HANGS:
                hanging.enter_context(freezing.frozen(disk))
                then = model.weight.detach().clone()
            saves[step] = job.checkpoint(step)
            if step < HANGS:
                job._checkpoints.settle()
    assert saves == {step: step <= HANGS for step in range(1, RESPONDS)}
    again = torch.nn.Linear(64, 64)
    with convoy.join() as job:
        job.restore(model=again)
        assert job.restored.step == HANGS and torch.equal(again.weight, then)
