"""Tests of loading a model: from safetensors files, from the shards of a generation, or from a seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Record
from convoy_workloads.engines.gpt.model import GPT, Shape
from convoy_workloads.engines.lm import weights
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.runtime import DataError
from convoy_workloads.runtime.state import TrainingState
from convoy_workloads.runtime.tiers import planning, shard
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import SafetensorsFile, write_safetensors
from convoy_workloads.tensors.whole import ShardError, Whole, open_shard

PARAMS = Params()


@pytest.fixture(scope="module")
def trained() -> GPT:
    torch.manual_seed(3)
    return GPT(context=16, layers=2, width=12, heads=3)


def save(trained: GPT, folder: Path) -> Path:
    """Save a training state of gpt as a shard, as Convoy's agents store it."""
    optimizer = torch.optim.AdamW(trained.parameters())
    state = TrainingState(0, trained, optimizer, {"shape": Shape(3)})
    snapshot = planning.StateSnapshot(state.collect())
    plan = planning.plan_save(snapshot)
    bytes_ = bytearray(plan.layout.size)
    shard.write(
        memoryview(bytes_), plan.layout, snapshot.tensors(plan), snapshot.texts(plan), planning.facts(7, 1)
    )
    path = folder / "shards" / "0" / "gen-1-7"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes_)
    (folder / "record.json").write_bytes(Record(Generation(1, 7), None, {"0": "id"}, world=2).text)
    return path


def export(trained: GPT, folder: Path, file: Path, facts: dict[str, Any] | None = None) -> None:
    whole = Whole([open_shard(save(trained, folder))])
    write_safetensors(file, whole, {"generation": json.dumps(facts or {"job": "train", "step": 7})})


def same(found: GPT, expected: GPT) -> bool:
    theirs = expected.state_dict()
    mine = found.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def load(path: Path | None, **params: Any) -> weights.Loaded:
    return weights.load(path, Params.model_validate(params), lambda: None)


def test_the_shards_of_a_generation_are_merged(trained: GPT, tmp_path: Path) -> None:
    save(trained, tmp_path)
    found = load(tmp_path)
    assert same(found.model, trained) and found.model.blocks[0].heads == 3
    assert found.facts == {
        "trained": True,
        "step": 7,
        "incarnation": 1,
        "world": 2,
        "torch": "",
        "saved": 0.0,
    }
    assert str(tmp_path) in found.source


def test_an_exported_generation_is_loaded_from_its_file_or_folder(trained: GPT, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    export(trained, tmp_path / "store", folder / "state.safetensors")
    for path in (folder, folder / "state.safetensors"):
        found = load(path)
        assert same(found.model, trained) and found.model.blocks[1].heads == 3
        assert found.facts == {"trained": True, "job": "train", "step": 7}


def plain(
    trained: GPT, folder: Path, change: Callable[[dict[str, torch.Tensor]], None] = lambda _: None
) -> Path:
    """Write a plain safetensors file: the names have no prefix, and there is no other value."""
    state = {
        name: one.detach().clone() for name, one in trained.state_dict().items() if name != "head.weight"
    }
    change(state)
    rows = [
        (name, ((0,) * one.dim(), tuple(one.shape)), tuple(one.shape), one.dtype)
        for name, one in state.items()
    ]
    layout = shard.lay_out(rows, 4096)
    target = bytearray(layout.size)
    shard.write(memoryview(target), layout, list(state.values()), {}, {})
    write_safetensors(folder / "model.safetensors", Whole([shard.read(memoryview(target))]), {})
    return folder


def test_a_plain_file_needs_the_number_of_heads(trained: GPT, tmp_path: Path) -> None:
    plain(trained, tmp_path)
    with pytest.raises(
        ModelError, match=r"does not contain the number of attention heads: set params\.heads"
    ):
        load(tmp_path)
    assert same(load(tmp_path, heads=3).model, trained)
    (tmp_path / "config.json").write_text(json.dumps({"n_head": 3}))
    assert load(tmp_path).model.blocks[0].heads == 3
    with pytest.raises(ModelError, match=r"params\.heads: 2 differs from the model's 3"):
        load(tmp_path, heads=2)
    (tmp_path / "config.json").write_text(json.dumps({"heads": 5}))
    with pytest.raises(ModelError, match="5 attention heads, which do not divide its width of 12"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ModelError, match=r"config\.json is not valid JSON"):
        load(tmp_path)


def drop(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda state: state.__delitem__(name)


def replace(name: str, one: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda state: state.update({name: one})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop("tokens.weight"), "lacks the tensor tokens.weight"),
        (drop("blocks.1.out.bias"), "lacks the tensor blocks.1.out.bias"),
        (drop("blocks.0.qkv.weight"), "lacks the tensor blocks.0.qkv.weight"),
        (
            replace("tokens.weight", torch.zeros(99, 12)),
            r"tokens.weight has shape \[99, 12\], expected \[256, width\]",
        ),
        (replace("norm.bias", torch.zeros(13)), r"norm.bias has shape \[13\], expected \[12\]"),
        (replace("norm.bias", torch.zeros(12, dtype=torch.int32)), "norm.bias has type torch.int32"),
        (replace("norm.bias", torch.full((12,), float("nan"))), "norm.bias has values that are not finite"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_the_name_of_the_tensor(
    change: Callable[[dict[str, torch.Tensor]], None], words: str, trained: GPT, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=words):
        load(plain(trained, tmp_path, change), heads=3)


def test_half_precision_is_widened(trained: GPT, tmp_path: Path) -> None:
    folder = plain(
        trained, tmp_path, lambda state: state.update({name: one.bfloat16() for name, one in state.items()})
    )
    found = load(folder, heads=3).model
    assert found.tokens.weight.dtype == torch.float32
    assert torch.equal(found.tokens.weight, trained.tokens.weight.bfloat16().float())


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", ".metadata", "__0_0.distcp"])
def test_a_pickle_is_refused_unread(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n")
    with pytest.raises(ModelError, match=f"has {name}, which holds a pickle"):
        load(tmp_path)


def test_folders_without_a_model_are_refused(trained: GPT, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load(tmp_path / "absent")
    with pytest.raises(ModelError, match="neither"):
        load(tmp_path)
    path = save(trained, tmp_path)
    (path.parent / "gen-1-8").write_bytes(b"")
    with pytest.raises(ModelError, match="shard 0 has 2 files: the generation ends in a journal"):
        load(tmp_path)
    (path.parent / "gen-1-8").unlink()
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path)
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(ModelError, match="has no shards"):
        load(tmp_path)


def test_the_own_model_depends_on_the_seed_alone() -> None:
    before = torch.get_rng_state()
    one, other, third = load(None, seed=4), load(None, seed=4), load(None, seed=5)
    assert same(one.model, other.model) and not same(one.model, third.model)
    assert torch.equal(before, torch.get_rng_state())
    assert one.facts == {"trained": False} and "random weights from seed 4" in one.source
    with pytest.raises(ModelError, match=r"params\.width: 128 must be a multiple of heads=3"):
        load(None, heads=3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        (2**40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": {}}',
        (20).to_bytes(8, "little") + b'{"__metadata__": []}',
        (68).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'.ljust(68)
        + b"1234",
        (68).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}'.ljust(68)
        + b"12345678",
        (68).to_bytes(8, "little")
        + b'{"a":{"dtype":"XX","shape":[2],"data_offsets":[0,8]}}'.ljust(68)
        + b"12345678",
    ],
)
def test_a_malformed_safetensors_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(ShardError, match=r"a\.safetensors"):
        SafetensorsFile(path)


@pytest.mark.parametrize(("name", "value"), [("values", "{"), ("generation", "[]")])
def test_malformed_metadata_of_a_safetensors_file_is_named(name: str, value: str, tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {name: value}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelError, match=rf"a\.safetensors: __metadata__\.{name}"):
        load(tmp_path)


def test_another_number_of_heads_is_refused_by_the_training() -> None:
    with pytest.raises(DataError, match=r"has 4 attention heads, but params\.heads is 2"):
        Shape(2).load_state_dict(Shape(4).state_dict())


def test_a_mixture_of_experts_is_refused(tmp_path: Path) -> None:
    save(GPT(context=16, layers=1, width=12, heads=3, experts=4), tmp_path)
    with pytest.raises(ModelError, match="mixture of experts, but this engine serves dense models only"):
        load(tmp_path)
