"""Tests of values that differ between ranks under the same name. Two ranks train and save, and other ranks
continue.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.unit.workloads import rank_processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from convoy_workloads.runtime.folder import snapshot
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.state import SMALL_BYTES, TrainingState
from convoy_workloads.runtime.tiers import planning, reading, shard
from convoy_workloads.runtime.tiers.rank_collectives import gather

WORLD, BEFORE, AFTER = 2, 4, 4
LARGE = SMALL_BYTES // 4 + 1
"""Number of elements of a tensor that is large enough to be compared between ranks."""


class Sampler:
    """A sampler with its own position, generator and large table on each rank. A second large table is the
    same on all ranks.
    """

    def __init__(self, rank: int) -> None:
        self.place = 1000 * (rank + 1)
        self.random = torch.Generator().manual_seed(rank)
        self.own = torch.full((LARGE,), float(rank))
        self.shared = torch.ones(LARGE)

    def state_dict(self) -> dict[str, Any]:
        generator = {"generator": self.random.get_state()}
        return {"place": self.place, "random": generator, "own": self.own, "shared": self.shared}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]
        self.random.set_state(state["random"]["generator"])
        self.own, self.shared = state["own"], state["shared"]


class Run:
    """Stands in for the program of one rank."""

    def __init__(self, rank: int, seed: int, broadcast: bool) -> None:
        torch.manual_seed(seed)
        self.sampler = Sampler(rank if seed == 1 else rank + 7)
        layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.model = DistributedDataParallel(layers, broadcast_buffers=broadcast)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.state = TrainingState(rank, self.model, self.optimizer, {"sampler": self.sampler}, WORLD)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            inputs = torch.randn(5, 6, generator=self.sampler.random) + self.sampler.place % 7
            self.model(inputs).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.sampler.place += 1
            self.sampler.own += 0.5
            self.sampler.shared *= 1.5

    def bits(self) -> str:
        total = hashlib.sha256(repr(self.sampler.place).encode())
        moments = self.optimizer.state_dict()["state"]
        for tensor in [
            *self.model.state_dict().values(),
            *(moments[index][name] for index in sorted(moments) for name in sorted(moments[index])),
            self.sampler.own,
            self.sampler.shared,
            self.sampler.random.get_state(),
        ]:
            total.update(tensor.numpy().tobytes())
        return total.hexdigest()


Kept = Callable[[dict[str, Any], Any], Callable[[dict[str, Any]], None]]
"""A function that saves a state with all ranks, and returns a function that loads the state again."""


def in_memory(state: dict[str, Any], folder: Path) -> Callable[[dict[str, Any]], None]:
    snapshot = planning.StateSnapshot(state)
    rank_plan = planning.plan_save(snapshot, dist.group.WORLD)
    data = bytearray(rank_plan.layout.size)
    facts = planning.facts(BEFORE, WORLD)
    shard.write(
        memoryview(data), rank_plan.layout, snapshot.tensors(rank_plan), snapshot.texts(rank_plan), facts
    )
    every = [shard.read(memoryview(one)) for one in gather(data, dist.group.WORLD)]
    return lambda into: reading.load(into, every)


def in_a_folder(state: dict[str, Any], folder: Path) -> Callable[[dict[str, Any]], None]:
    staged = snapshot.stage(state, folder, Generation(1, BEFORE), dist.group.WORLD)
    snapshot.write(staged)
    if staged.rank == 0:
        snapshot.seal(staged, 60)
    dist.barrier()
    return lambda into: snapshot.load(into, folder / Generation(1, BEFORE).name, dist.group.WORLD)


def goes_on(rank: int, folder: Path, keep: Kept, broadcast: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=60),
    )
    first = Run(rank, 1, broadcast)
    first.train(BEFORE)
    first.state.compare(lambda value: gather(value, dist.group.WORLD))
    load = keep(first.state.collect(), folder)
    first.train(AFTER)

    second = Run(rank, 2, broadcast)
    second.train(1)
    state = second.state.load_target()
    load(state)
    second.state.apply(state, WORLD)
    second.train(AFTER)
    assert second.bits() == first.bits()

    # With another number of ranks, all ranks get rank 0's version.
    other = Run(rank, 3, broadcast)
    state = other.state.load_target()
    load(state)
    other.state.apply(state, WORLD + 1)
    places = gather((other.sampler.place, other.model.module[1].running_mean.tolist()), dist.group.WORLD)  # type: ignore[index,union-attr,operator]
    assert places[0] == places[1]
    assert places[0][0] == 1000 + BEFORE
    dist.barrier()  # Wait for the other rank, which may still need this one.
    os._exit(0)  # Exit at once, because the end of gloo's threads is not part of the test.


@pytest.mark.parametrize("broadcast", [True, False], ids=["rank 0's buffers for all", "buffers of their own"])
@pytest.mark.parametrize("keep", [in_memory, in_a_folder])
def test_every_rank_restores_its_own_state(tmp_path: Path, keep: Kept, broadcast: bool) -> None:
    context = rank_processes.context()
    ranks = [context.Process(target=goes_on, args=(rank, tmp_path, keep, broadcast)) for rank in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(120)
        one.kill()
    assert [one.exitcode for one in ranks] == [0] * WORLD


def test_large_tensors_that_ranks_share_are_saved_once_and_small_ones_by_the_lowest() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    states = [TrainingState(rank, model, None, {"sampler": Sampler(rank)}, WORLD) for rank in range(WORLD)]
    digests: list[Any] = []
    for state in states:
        state.compare(lambda mine: digests.append(mine) or [mine])  # type: ignore[func-returns-value]
    for state in states:
        state._differ = None
        state.compare(lambda _: digests)
    plans = planning.without_duplicates([planning.StateSnapshot(state.collect()).local for state in states])
    names = [{item.index.fqn for item in plan.items} for plan in plans]
    apart = {"buffers.1.running_mean", "extra.sampler.place", "extra.sampler.own", "generators"}
    for rank in range(WORLD):
        own = {name for name in names[rank] if name.startswith("rank.")}
        assert {f"rank.{rank}.{name}" for name in apart} <= own
        assert f"rank.{rank}.extra.sampler.shared" not in own
    assert {"model.0.weight", "model.1.running_mean", "extra.sampler.place"} <= names[0]
    assert not {"model.0.weight", "model.1.running_mean", "extra.sampler.place"} & names[1]
    assert "extra.sampler.shared" in names[0] & names[1], "DCP spreads what is large"


def test_a_single_rank_saves_nothing_twice() -> None:
    state = TrainingState(0, nn.BatchNorm1d(2), None, {"sampler": Sampler(0)}).collect()
    assert set(state["rank.0"]) == {"generators"}


def test_state_that_was_allocated_for_a_restore_can_be_released() -> None:
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(net.parameters())
    state = TrainingState(0, net, optimizer)
    state.allocate_optimizer_state()
    assert len(optimizer.state) == 2
    state.release_optimizer_state()
    assert not optimizer.state


def test_state_of_the_program_is_not_released() -> None:
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = TrainingState(0, net, optimizer)
    state.allocate_optimizer_state()
    state.release_optimizer_state()
    assert len(optimizer.state) == 2


def test_values_that_are_in_place_are_not_copied_onto_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = TrainingState(0, net)
    loaded: dict[str, Any] = {}
    monkeypatch.setattr(nn.Module, "load_state_dict", lambda _, state_dict, **__: loaded.update(state_dict))
    target = state.load_target()
    target["model"]["0.bias"] = torch.ones(2)
    state.apply(target, 1)
    own = dict(net.state_dict(keep_vars=True))
    assert {name for name, one in loaded.items() if one is not own[name]} == {"0.bias"}
