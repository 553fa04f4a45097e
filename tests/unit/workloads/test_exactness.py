from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from convoy_workloads.engines.gpt.deterministic import be_deterministic
from convoy_workloads.runtime.exactness import (
    deterministic_on,
    exact,
    rng_state,
    run_warmup_passes,
    set_rng_state,
)
from convoy_workloads.runtime.generation import Generation, Record


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(1))]


def test_generators_are_restored_to_their_saved_state() -> None:
    state = rng_state()
    first = draws()
    set_rng_state(state)
    assert draws() == first
    assert draws() != first


@pytest.mark.parametrize(
    ("world", "version", "warmed", "same"),
    [
        (2, "2.13.0", False, True),
        (2, "2.13.1", False, False),
        (2, "2.13.0+cu130", True, False),
        (3, "2.13.0", True, False),
    ],
)
def test_an_exact_resume_requires_the_world_size_and_torch_version_of_the_save(
    world: int, version: str, warmed: bool, same: bool
) -> None:
    record = Record(Generation(1, 10), world=2, torch="2.13.0")
    assert exact(record, world, version, warmed, deterministic=True) is same


def test_three_or_more_ranks_need_warmup_passes_for_an_exact_resume() -> None:
    record = Record(Generation(1, 10), world=3, torch="2.13.0")
    assert [exact(record, 3, "2.13.0", warmed, deterministic=True) for warmed in (False, True)] == [
        False,
        True,
    ]


def test_an_exact_resume_on_a_gpu_needs_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert (deterministic_on(None), deterministic_on(cpu), deterministic_on(gpu)) == (True, True, False)
    record = Record(Generation(1, 10), world=1, torch="2.13.0")
    assert not exact(record, 1, "2.13.0", True, deterministic=False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    try:
        be_deterministic(cpu)
        assert not torch.are_deterministic_algorithms_enabled()
        be_deterministic(gpu)
        assert deterministic_on(gpu)
    finally:
        torch.use_deterministic_algorithms(False)


def test_warmup_passes_leave_no_trace() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = rng_state()
    passes = []

    def one_pass() -> None:
        passes.append(model(torch.randn(8, 4)).sum().backward())

    run_warmup_passes(model, one_pass)
    assert len(passes) == 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    after: Callable[[], list[float]] = draws
    found = after()
    set_rng_state(state)
    assert draws() == found
