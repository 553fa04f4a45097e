from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from convoy_workloads.runtime.checkpoints import open_checkpoints
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.state import TrainingState


class Counter:
    """An object that the program defines, such as a sampler."""

    def __init__(self) -> None:
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def program(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Counter]:
    """Return the objects of a program. One parameter of the model never has a gradient."""
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    model.register_parameter("unused", nn.Parameter(torch.ones(2)))
    return model, torch.optim.AdamW(model.parameters()), Counter()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, counter: Counter) -> None:
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    counter.at += 1


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_restored_program_continues_as_the_saved_program_would(tmp_path: Path) -> None:
    first = program(1)
    step(*first)
    saver = open_checkpoints(RankContext(checkpoint_dir=tmp_path))
    assert saver is not None
    assert saver.finish_last(saver.stage_last(TrainingState(0, *first[:2], {"c": first[2]}).collect(), 1))
    step(*first)

    second = program(2)
    reader = open_checkpoints(RankContext(checkpoint_dir=tmp_path))
    assert reader is not None
    record = reader.choose()
    assert record is not None
    assert (saver.incarnation, record.generation, reader.incarnation) == (1, Generation(1, 1), 2)
    state = TrainingState(0, *second[:2], {"c": second[2]})
    collected = state.load_target()
    reader.load(collected, record)
    state.apply(collected, 1)
    step(*second)
    for one, other in zip(first[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(one, other)
    assert second[2].at == 2


@pytest.mark.parametrize("value", [64, None, {"a": 1}], ids=str)
def test_a_value_that_cannot_be_saved_is_refused_before_the_first_step(value: Any) -> None:
    with pytest.raises(TypeError, match=r"extra\['seen'\]: \w+ has no state_dict and load_state_dict"):
        TrainingState(0, nn.Linear(1, 1), extra={"counter": Counter(), "seen": value})


def test_a_save_without_a_model_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"job\.restore\(model=\.\.\.\) comes before"):
        TrainingState(0).collect()


def test_a_launched_rank_keeps_its_incarnation_and_needs_a_folder_for_checkpoints(tmp_path: Path) -> None:
    assert open_checkpoints(RankContext(incarnation=7)) is None
    opened = open_checkpoints(RankContext(incarnation=7, checkpoint_dir=tmp_path))
    assert opened is not None
    assert opened.incarnation == 7
