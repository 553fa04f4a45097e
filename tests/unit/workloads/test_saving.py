from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

import convoy
from convoy_workloads.runtime import checkpoint, commits, snapshot
from convoy_workloads.runtime.agreement import Gate
from convoy_workloads.runtime.checkpoint import Checkpoints
from convoy_workloads.runtime.commits import COMMITTED
from convoy_workloads.runtime.lineage import Generation

STATE = {"weights": torch.zeros(4)}


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Writes to the volume hang until it is set."""
    answers = threading.Event()
    write = snapshot.write

    def slow(staged: snapshot.Staged) -> None:
        assert answers.wait(60)
        write(staged)

    monkeypatch.setattr(snapshot, "write", slow)
    yield answers
    answers.set()


def test_a_rank_whose_volume_hangs_is_busy_and_says_so_once(
    volume: threading.Event,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(checkpoint, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(commits, "DECISION_SECONDS", 0.0)
    checkpoints = Checkpoints(tmp_path, 1, 0, 0.0)
    assert not checkpoints.busy()
    assert checkpoints.start(STATE, 1)
    assert checkpoints.busy()
    assert checkpoints.busy()
    assert capsys.readouterr().err.count("the next checkpoint waits") == 1
    volume.set()
    assert checkpoints.commits.wait(Generation(1, 1), 60) == COMMITTED
    assert checkpoints.settle()
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
        job._gate = Gate(reduce)
        saves = []
        for step in job.steps(4):
            saves.append(job.checkpoint(step))
            job._checkpoints.settle()
    assert saves == [True, False, False, True]


def test_a_generation_that_stays_undecided_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, 1, 0, 0.0)
    checkpoints.commits.connect(lambda _: None)  # agents that never answer
    checkpoints.start(STATE, 1)
    checkpoints._thread.join(60)
    assert not checkpoints.due()
    monkeypatch.setattr(commits, "DECISION_SECONDS", 0.0)
    assert checkpoints.due()
    monkeypatch.setattr(checkpoint, "LAG_SECONDS", 60.0)
    began = time.monotonic()
    assert checkpoints.start(STATE, 2)
    assert time.monotonic() - began < 30
