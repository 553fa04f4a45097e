from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

import convoy
from convoy_workloads.runtime.folder import checkpoints as folder
from convoy_workloads.runtime.folder import snapshot
from convoy_workloads.runtime.folder.checkpoints import FolderCheckpoints
from convoy_workloads.runtime.step_consensus import StepConsensus

STATE = {"weights": torch.zeros(4)}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event. Writes to the disk hang until it is set."""
    answers = threading.Event()
    write = snapshot.write

    def slow(staged: snapshot.Staged) -> None:
        assert answers.wait(60)
        write(staged)

    monkeypatch.setattr(snapshot, "write", slow)
    yield answers
    answers.set()


def test_a_rank_with_a_hung_disk_is_busy_and_logs_that_once(
    disk: threading.Event,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(folder, "SLOW_SECONDS", 0.0)
    checkpoints = FolderCheckpoints(tmp_path, 1, 0, 0.0)
    assert not checkpoints.busy()
    assert checkpoints.start(STATE, 1)
    assert checkpoints.busy()
    assert checkpoints.busy()
    assert capsys.readouterr().err.count("the next checkpoint waits") == 1
    disk.set()
    assert checkpoints.settle()
    record = checkpoints.choose()
    assert record is not None and record.generation.step == 1
    assert not checkpoints.busy()
    assert checkpoints.due()


def test_no_rank_saves_while_another_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("CONVOY_CHECKPOINT_SECONDS", "0.000001")
    peer_writes = iter([0, 1, 1, 0])

    def reduce(mine: Sequence[int]) -> Callable[[], Sequence[int]]:
        peers = (0, 0, next(peer_writes))
        return lambda: [max(pair) for pair in zip(mine, peers, strict=True)]

    with convoy.join() as job:
        model = torch.nn.Linear(2, 2)
        job.restore(model=model)
        job._consensus = StepConsensus(reduce)
        saves = []
        for step in job.steps(4):
            saves.append(job.checkpoint(step))
            job._checkpoints.settle()
    assert saves == [True, False, False, True]
