"""Tests of the warning that a rank gets at its first step if its process group is smaller than the job."""

from __future__ import annotations

import pytest

from convoy_workloads.runtime.hooks import StepHook
from convoy_workloads.runtime.processes import smaller_group
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.telemetry.step_recorder import StepRecorder


class Optimizer:
    """Stands in for one of torch's optimizers."""


@pytest.mark.parametrize(
    ("size", "world", "words"),
    [(None, 1, ""), (None, 2, "trains alone, but the job has 2 ranks"), (1, 4, "trains alone"), (4, 4, ""),
     (2, 4, "is in a process group of 2, but the job has 4 ranks")],
)  # fmt: skip
def test_a_group_smaller_than_the_job_logs_a_warning(
    size: int | None, world: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch.distributed as dist

    monkeypatch.setattr(dist, "is_initialized", lambda: size is not None)
    monkeypatch.setattr(dist, "get_world_size", lambda: size)
    found = smaller_group(world)
    assert words in found and bool(words) == bool(found)


def test_the_warning_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    hook, optimizers = StepHook(RankContext(world=2), StepRecorder()), (Optimizer(), Optimizer())
    for _ in range(3):
        for optimizer in optimizers:
            hook(optimizer)
    assert capsys.readouterr().err.count("convoy: WARNING: this rank trains alone") == 1
