"""Tests of a rank's shard as bytes, and of its load into any state with the same names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

from convoy_workloads.runtime.saved_entries import drop_unsaved
from convoy_workloads.runtime.state import TrainingState
from convoy_workloads.runtime.tiers import planning, reading, shard
from convoy_workloads.runtime.tiers.values import UnsavableError


def model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3))


def trained(seed: int = 0, steps: int = 3) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    net = model(seed)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(4, 8)).square().sum().backward()
        optimizer.step()
    return net, optimizer


def saved(state: dict[str, Any]) -> tuple[bytearray, planning.RankPlan]:
    snapshot = planning.StateSnapshot(state)
    rank_plan = planning.plan_save(snapshot)
    target = bytearray(rank_plan.layout.size)
    shard.write(
        memoryview(target),
        rank_plan.layout,
        snapshot.tensors(rank_plan),
        snapshot.texts(rank_plan),
        planning.facts(7, 1),
    )
    return target, rank_plan


def bits(state: dict[str, Any]) -> dict[str, Any]:
    flat, _ = flatten_state_dict(state)
    return {
        name: value.detach().numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value)
        for name, value in flat.items()
        if not name.startswith("rank.")
    }


def test_a_state_is_restored_bit_for_bit_into_another_model() -> None:
    net, optimizer = trained()
    data, _ = saved(TrainingState(0, net, optimizer).collect())
    other, fresh = trained(seed=9, steps=1)
    holder = TrainingState(0, other, fresh)
    state = holder.load_target()
    reading.load(state, [shard.read(memoryview(data))])
    holder.apply(state, 1)
    assert bits(TrainingState(0, other, fresh).collect()) == bits(TrainingState(0, net, optimizer).collect())


def test_checkpoint_metadata_is_read_without_the_state() -> None:
    net, optimizer = trained()
    data, rank_plan = saved(TrainingState(0, net, optimizer).collect())
    found = shard.read(memoryview(data))
    assert found.facts == {"step": 7, "torch": str(torch.__version__), "world": 1}
    assert found.parts == rank_plan.layout.parts
    assert all(part.at % shard.ALIGN == 0 for part in found.parts)


def test_a_changed_tensor_changes_only_its_own_bytes() -> None:
    net, optimizer = trained()
    first, rank_plan = saved(TrainingState(0, net, optimizer).collect())
    again, _ = saved(TrainingState(0, net, optimizer).collect())
    assert first == again
    with torch.no_grad():
        net[2].weight[0, 0] += 1  # type: ignore[index]
    after, moved = saved(TrainingState(0, net, optimizer).collect())
    assert moved.layout == rank_plan.layout
    part = next(part for part in rank_plan.layout.parts if part.name == "model.2.weight")
    changed = [at for at in range(len(first)) if first[at] != after[at]]
    assert changed and all(part.at <= at < part.at + part.length for at in changed)


def test_a_plan_fits_only_one_structure() -> None:
    net, optimizer = trained()
    one = planning.StateSnapshot(TrainingState(0, net, optimizer).collect())
    same = planning.StateSnapshot(TrainingState(0, net, optimizer).collect())
    net.register_buffer("extra", torch.zeros(3))
    other = planning.StateSnapshot(TrainingState(0, net, optimizer).collect())
    assert one.structure == same.structure != other.structure
    assert planning.plan_save(one).plan != planning.plan_save(other).plan


def test_a_reused_plan_saves_current_values() -> None:
    net, optimizer = trained()
    rank_plan = planning.plan_save(planning.StateSnapshot(TrainingState(0, net, optimizer).collect()))
    optimizer.param_groups[0]["lr"] = 0.5
    # A program may replace the storage of its parameters. A cached reference would save the old storage again
    # (NeMo-RL#3312).
    net[0].weight.data = torch.full_like(net[0].weight, 3.0)  # type: ignore[union-attr,operator,arg-type]
    snapshot = planning.StateSnapshot(TrainingState(0, net, optimizer).collect())
    target = bytearray(rank_plan.layout.size)
    shard.write(
        memoryview(target), rank_plan.layout, snapshot.tensors(rank_plan), snapshot.texts(rank_plan), {}
    )
    state = TrainingState(0, *trained(seed=4)).collect()
    reading.load(state, [shard.read(memoryview(target))])
    assert torch.equal(state["model"]["0.weight"], torch.full((16, 8), 3.0))
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.5


def test_parts_of_several_shards_make_one_tensor() -> None:
    """Two ranks save parts of a tensor, and one rank loads the whole tensor."""
    whole = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    shards = []
    for start, rows in ((0, 4), (4, 2)):
        layout = shard.lay_out([("w", ((start, 0), (rows, 4)), (6, 4), torch.float32)], 0)
        target = bytearray(layout.size)
        shard.write(memoryview(target), layout, [whole[start : start + rows]], {}, {})
        shards.append(shard.read(memoryview(target)))
    state: dict[str, Any] = {"w": torch.zeros(6, 4)}
    reading.load(state, shards)
    assert torch.equal(state["w"], whole)


def test_a_rank_absent_from_the_save_restores_no_generators() -> None:
    net, optimizer = trained()
    data, _ = saved(TrainingState(0, net, optimizer).collect())
    state = TrainingState(3, *trained(seed=2)).collect()
    assert "rank.3" in state
    reading.load(state, [shard.read(memoryview(data))])
    assert "rank.3" not in state


def partly_used() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return a model and an optimizer. One parameter never has a gradient, so the optimizer has no state
    for this parameter.
    """
    net = model()
    net.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


def test_a_parameter_without_gradients_has_no_state_after_a_restore() -> None:
    net, optimizer = partly_used()
    net(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    data, _ = saved(TrainingState(0, net, optimizer).collect())
    other, fresh = partly_used()
    holder = TrainingState(0, other, fresh)
    holder.allocate_optimizer_state()
    state = holder.load_target()
    reading.load(state, [shard.read(memoryview(data))])
    holder.apply(state, 1)
    assert bits(TrainingState(0, other, fresh).collect()) == bits(TrainingState(0, net, optimizer).collect())
    assert not fresh.state.get(other.get_parameter("unused"))


def restored(data: bytearray, net: torch.nn.Module, optimizer: Any) -> None:
    holder = TrainingState(0, net, optimizer)
    holder.allocate_optimizer_state()
    state = holder.load_target()
    reading.load(state, [shard.read(memoryview(data))])
    holder.apply(state, 1)


def test_keys_that_the_program_added_to_a_parameter_group_are_restored() -> None:
    """A scheduler needs the `initial_lr` of the interrupted run (pytorch#140900)."""
    net, optimizer = trained()
    torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5).step()
    optimizer.param_groups[0]["scale"] = torch.tensor([2.0, 3.0])
    data, _ = saved(TrainingState(0, net, optimizer).collect())
    other, fresh = trained(seed=9)
    restored(data, other, fresh)
    assert fresh.param_groups[0]["initial_lr"] == 0.01 and fresh.param_groups[0]["lr"] == 0.005
    assert fresh.param_groups[0]["scale"].tolist() == [2.0, 3.0]
    torch.optim.lr_scheduler.ExponentialLR(fresh, 0.5, last_epoch=1)


@pytest.mark.parametrize("stepped", [False, True])
def test_state_of_a_frozen_parameter_is_restored(stepped: bool) -> None:
    """A program may freeze a layer for some steps and train it again (pytorch#192202)."""
    net, optimizer = trained()
    net[0].weight.requires_grad_(False)  # type: ignore[operator,union-attr]
    data, _ = saved(TrainingState(0, net, optimizer).collect())
    other = model(seed=9)
    other[0].weight.requires_grad_(False)  # type: ignore[index,operator,union-attr]
    fresh = torch.optim.AdamW(other.parameters(), lr=0.01)
    if stepped:
        other(torch.ones(2, 8)).sum().backward()
        fresh.step()
    restored(data, other, fresh)
    assert bits(TrainingState(0, other, fresh).collect()) == bits(TrainingState(0, net, optimizer).collect())
    assert not other[0].weight.requires_grad  # type: ignore[index,union-attr]
    assert other[0].weight in fresh.state  # type: ignore[index]


def test_several_optimizers_of_one_model_are_restored() -> None:
    def made(seed: int) -> tuple[torch.nn.Module, Any]:
        net = model(seed)
        first, rest = list(net.parameters())[:2], list(net.parameters())[2:]
        both = [torch.optim.AdamW(first, lr=0.01), torch.optim.SGD(rest, lr=0.01, momentum=0.9)]
        net(torch.randn(4, 8)).square().sum().backward()
        for one in both:
            one.step()
        return net, both

    net, optimizers = made(0)
    data, _ = saved(TrainingState(0, net, optimizers).collect())
    other, fresh = made(9)
    restored(data, other, fresh)
    assert bits(TrainingState(0, other, fresh).collect()) == bits(TrainingState(0, net, optimizers).collect())


class CountedStr(str):
    """A name that counts how often it is compared as a prefix."""

    calls = 0

    def startswith(self, *args: Any) -> bool:
        CountedStr.calls += 1
        return super().startswith(*args)


def test_many_parameters_are_matched_in_linear_time() -> None:
    moments = {f"layer{number}": {"step": 1} for number in range(300)}
    names = [CountedStr(f"optimizer.state.{name}.step") for name in moments]
    CountedStr.calls = 0
    drop_unsaved({"optimizer": {"state": moments}}, names)
    assert len(moments) == 300 and CountedStr.calls <= 2 * len(names)


def test_nested_optimizer_state_counts_as_saved() -> None:
    moments = {"a": {"m": {"scale": torch.ones(2)}}, "b": {"m": {"scale": torch.ones(2)}}}
    state = {"optimizer": {"state": moments}}
    drop_unsaved(state, {"model.a", "optimizer.state.a.m.scale"})
    assert list(moments) == ["a"]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [(torch.optim.AdamW, {}), (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5})],
)
def test_a_save_before_the_first_step_is_restored(
    optimizer: Any, options: dict[str, float], gradients: bool
) -> None:
    """A job may save while the first gradients accumulate, or after a scaler has skipped the first step."""
    net = model()
    own = optimizer(net.parameters(), lr=0.01, **options)
    if gradients:
        net(torch.ones(2, 8)).sum().backward()
    data, _ = saved(TrainingState(0, net, own).collect())
    other = model(seed=9)
    fresh = optimizer(other.parameters(), lr=0.01, **options)
    holder = TrainingState(0, other, fresh)
    holder.allocate_optimizer_state()
    state = holder.load_target()
    reading.load(state, [shard.read(memoryview(data))])
    holder.apply(state, 1)
    assert not fresh.state
    assert bits(TrainingState(0, other, fresh).collect()) == bits(TrainingState(0, net, own).collect())


def test_another_optimizer_class_is_not_restored_without_its_state() -> None:
    net = model()
    data, _ = saved(TrainingState(0, net, torch.optim.SGD(net.parameters(), lr=0.1)).collect())
    holder = TrainingState(0, net, torch.optim.AdamW(net.parameters()))
    with pytest.raises(CheckpointException, match="Missing key"):
        reading.load(holder.load_target(), [shard.read(memoryview(data))])


def test_an_index_larger_than_its_reserved_space_is_rejected() -> None:
    layout = shard.lay_out([], 10)
    with pytest.raises(shard.TooLarge):
        shard.write(memoryview(bytearray(layout.size)), layout, [], {"x": "y" * 200_000}, {})


@pytest.mark.parametrize(
    "data",
    [b"", b"CONVOY", shard.MAGIC + bytes(8), shard.MAGIC + (99).to_bytes(8, "little") + b"{}", bytes(4096)],
)
def test_invalid_bytes_are_rejected_as_a_shard(data: bytes) -> None:
    with pytest.raises(shard.ShardError):
        shard.read(memoryview(data))


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [
        (torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8), "quantized"),
        (torch.eye(3).to_sparse(), "sparse_coo"),
        (torch.empty(3, device="meta"), "meta"),
    ],
    ids=["quantized", "sparse", "meta"],
)
def test_a_tensor_that_cannot_be_saved_is_refused_by_name(tensor: torch.Tensor, kind: str) -> None:
    with pytest.raises(UnsavableError, match=rf"^model.codes: a {kind} tensor cannot be saved$"):
        saved({"model": {"weight": torch.ones(2), "codes": tensor}})
