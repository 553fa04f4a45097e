"""Tests of the backbones against the plain models: features, adapters, weights of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from convoy_workloads.engines.fmplex import backbones
from convoy_workloads.engines.fmplex.adapters import AdapterShape, Slots, random_adapter
from convoy_workloads.engines.fmplex.forms import ImageForm, TextForm
from convoy_workloads.engines.fmplex.params import Backbone
from convoy_workloads.engines.gpt.model import GPT, Block
from convoy_workloads.serving.protocol import ModelError

from .tasks_engine import CPU, IMAGE, TEXT, engine, pixels, run, texts, values, write

RANK = 4


def load(spec: dict[str, Any]) -> Any:
    return backbones.load(Backbone.model_validate(spec), None, RANK, CPU, lambda: None)


def merge(blocks: Any, adapter: dict[str, Tensor]) -> None:
    """Add an adapter to the weights of the blocks."""
    with torch.no_grad():
        for number, block in enumerate(blocks):
            assert isinstance(block, Block)
            for name, layer in (("qkv", block.qkv), ("out", block.out)):
                a, b = (adapter[f"layers.{number}.{name}.{end}"] for end in "ab")
                layer.weight += (a @ b).T


def test_text_features_are_the_mean_over_the_bytes_of_the_plain_model() -> None:
    loaded = load(TEXT)
    adapter = random_adapter(AdapterShape(2, 32, RANK), 7)
    loaded.adapters.put({3: adapter})
    packed = TextForm(48).pack(["hello", "a longer one"], 16)
    plain, adapted = loaded.features(packed, torch.tensor([0, 3]))
    torch.manual_seed(TEXT["seed"])
    model = GPT(48, 2, 32, 2).eval()
    for text, found in (("hello", plain), ("a longer one", adapted)):
        if found is adapted:
            merge(model.blocks, adapter)
        tokens = torch.tensor([list(text.encode())])
        with torch.inference_mode():
            x = model.tokens(tokens) + model.positions(torch.arange(len(text)))
            for block in model.blocks:
                x = block(x)
            expected = model.norm(x).mean(1)[0]
        assert torch.allclose(found, expected, atol=1e-5)


def test_image_features_depend_on_the_patches_and_on_the_adapter() -> None:
    loaded = load(IMAGE)
    loaded.adapters.put({1: random_adapter(AdapterShape(1, 32, RANK), 7)})
    form = ImageForm(16, 4)
    one, other = pixels(1), pixels(2)
    packed = form.pack([one, one, other], form.lengths[0])
    first, adapted, second = loaded.features(packed, torch.tensor([0, 1, 0]))
    assert not torch.allclose(first, adapted)
    assert not torch.allclose(first, second)
    swapped = one.copy()
    swapped[:, :4, :4], swapped[:, 4:8, :4] = one[:, 4:8, :4], one[:, :4, :4]
    (moved,) = loaded.features(form.pack([swapped], 16), torch.tensor([0]))
    assert not torch.allclose(first, moved), "positions count"


def test_a_cleared_slot_has_no_adapter() -> None:
    loaded = load(TEXT)
    packed = TextForm(48).pack(["hello"], 8)
    plain = loaded.features(packed, torch.tensor([0]))
    loaded.adapters.put({2: random_adapter(AdapterShape(2, 32, RANK), 7)})
    assert not torch.equal(loaded.features(packed, torch.tensor([2])), plain)
    loaded.adapters.clear(2)
    assert torch.equal(loaded.features(packed, torch.tensor([2])), plain)


def test_the_lowest_free_slot_is_used_first() -> None:
    slots = Slots()
    assert [slots.allocate() for _ in range(3)] == [1, 2, 3]
    slots.free(2)
    slots.free(0)
    assert [slots.allocate() for _ in range(2)] == [2, 4]


def test_texts_are_padded_to_powers_of_two_and_to_the_context() -> None:
    form = TextForm(48)
    assert form.lengths == (4, 8, 16, 32, 48)
    assert [form.length_of("x" * size) for size in (1, 4, 5, 33, 48)] == [4, 4, 8, 48, 48]
    assert form.length_of("\u00e9\u00e9") == 4


def test_a_backbone_may_be_a_checkpoint_of_gpt(tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = GPT(40, 1, 32, 4)
    state = {name: one.detach() for name, one in model.state_dict().items() if name != "head.weight"}
    write(tmp_path / "model.safetensors", state)
    (tmp_path / "config.json").write_text(json.dumps({"heads": 4}))
    trained = {"name": "trained", "kind": "Text", "source": "Model"}
    made = engine([{"name": "a"}], tmp_path, backbones=[trained], backbone_ref="trained")
    card = made.cards()["a"]
    assert card.source == f"the checkpoint in {tmp_path}"
    row = values(run(made, texts(1, "a", "x" * 40))[1])[0]
    with torch.inference_mode():
        x = model.tokens(torch.full((1, 40), ord("x"))) + model.positions(torch.arange(40))
        expected = model.norm(model.blocks[0](x)).mean(1)[0]
    assert np.allclose(row, expected / expected.norm(), atol=1e-5)


def test_a_missing_checkpoint_names_the_backbone() -> None:
    trained = {"name": "trained", "kind": "Text", "source": "Model"}
    with pytest.raises(ModelError, match=r"backbone 'trained' has source Model, but spec\.model is not set"):
        engine([{"name": "a"}], backbones=[trained], backbone_ref="trained")
