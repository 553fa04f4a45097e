"""Tests of the family Llama: logits of the library transformers, and files that do not fit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from convoy_workloads.engines.lm import llama_files, models, tensor_files
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import SafetensorsFile, write_tensors

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("transformers_logits.json").read_text())
"""Logits of LlamaForCausalLM, MistralForCausalLM and Qwen2ForCausalLM in float32, of the version that the
file names, with the weights of `values`. `config` has the fields of `model.config.to_dict()` that lm reads.
"""


def values(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the weights of a tensor. They depend on its name."""
    count = math.prod(shape)
    found = torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + sum(name.encode())).float() * 0.4
    return found.view(shape) + ("norm" in name)


def names(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors by the names that transformers gives them."""
    width, feed, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = width // config["num_attention_heads"]
    keys = config["num_key_value_heads"] * head
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn.o_proj.weight": (width, width),
        "mlp.gate_proj.weight": (feed, width),
        "mlp.up_proj.weight": (feed, width),
        "mlp.down_proj.weight": (width, feed),
    }
    for one, size in (("q", width), ("k", keys), ("v", keys)):
        layer[f"self_attn.{one}_proj.weight"] = (size, width)
        if config["model_type"] == "qwen2":
            layer[f"self_attn.{one}_proj.bias"] = (size,)
    found = {
        f"model.layers.{number}.{name}": shape
        for number in range(config["num_hidden_layers"])
        for name, shape in layer.items()
    }
    found |= {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    return found if config["tie_word_embeddings"] else {**found, "lm_head.weight": (vocabulary, width)}


def save(
    folder: Path,
    family: str,
    change: Callable[[dict[str, torch.Tensor]], None] = lambda _: None,
    **config: Any,
) -> Path:
    whole = {**RECORDED["models"][family]["config"], **config}
    tensors = {name: values(name, shape) for name, shape in names(whole).items()}
    change(tensors)
    write_tensors(folder / "model.safetensors", tensors, {})
    (folder / "config.json").write_text(json.dumps(whole))
    return folder


@pytest.mark.parametrize("family", RECORDED["models"])
@torch.no_grad()
def test_the_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    folder = save(tmp_path, family)
    body = json.loads((folder / "config.json").read_text())
    config = llama_files.read(folder / "config.json", body)
    model = llama_files.load(folder, config, models.open_tensors(folder), lambda: None)
    found = model.plain(torch.tensor([RECORDED["tokens"]]))[0]
    expected = torch.tensor(RECORDED["models"][family]["logits"])
    assert expected.std() > 0.1
    assert (found - expected).abs().max() < 2e-5


def in_shards(folder: Path) -> Path:
    """Split the files of a model, as Hugging Face does, and add the same weights with Mistral's own names."""
    file = folder / "model.safetensors"
    tensors = {name: SafetensorsFile(file).tensor(name).clone() for name in SafetensorsFile(file).entries}
    file.unlink()
    order = sorted(tensors)
    where = {
        name: f"model-{1 + at * 2 // len(order):05}-of-00002.safetensors" for at, name in enumerate(order)
    }
    for one in set(where.values()):
        write_tensors(folder / one, {name: tensors[name] for name in order if where[name] == one}, {})
    own = {f"own.{name}": one for name, one in tensors.items()}
    write_tensors(folder / "consolidated.safetensors", own, {})
    (folder / tensor_files.SHARD_INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def test_only_the_files_of_the_index_count(tmp_path: Path) -> None:
    folder = in_shards(save(tmp_path, "mistral"))
    config = llama_files.read(folder, json.loads((folder / "config.json").read_text()))
    tensors = models.open_tensors(folder)
    assert not any(name.startswith("own.") for name in tensors.names)
    llama_files.load(folder, config, tensors, lambda: None)


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"a": "model-00003-of-00003.safetensors"}, "lacks the file model-00003-of-00003.safetensors"),
        ({"a": "../model.safetensors"}, "'../model.safetensors' is no name of a file in this folder"),
        ({}, "weight_map: must be an object"),
        (["a"], "weight_map: must be an object"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(weight_map: Any, words: str, tmp_path: Path) -> None:
    folder = in_shards(save(tmp_path, "llama"))
    (folder / tensor_files.SHARD_INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ModelError, match=words):
        models.open_tensors(folder)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, "llama")
    write_tensors(folder / "adapted.safetensors", {"model.norm.weight": torch.zeros(16)}, {})
    with pytest.raises(
        ModelError, match=r"model\.norm\.weight is in adapted\.safetensors and in .*model\.safe"
    ):
        models.open_tensors(folder)


def load(folder: Path) -> None:
    models.load(folder, Params(), torch.device("cpu"), lambda: None)


def test_a_model_that_is_not_over_bytes_needs_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json, but the model has 32 tokens"):
        load(save(tmp_path, "llama"))


@pytest.mark.parametrize(
    ("change", "config", "words"),
    [
        (lambda one: one.pop("model.norm.weight"), {}, "lacks the tensor model.norm.weight"),
        (
            lambda one: one.update({"model.layers.0.self_attn.o_proj.bias": torch.zeros(16)}),
            {},
            r"has the tensor model\.layers\.0\.self_attn\.o_proj\.bias, which does not belong",
        ),
        (lambda _: None, {"num_hidden_layers": 1}, ""),
        (lambda _: None, {"sliding_window": 8}, "sliding_window: is not supported"),
        (
            lambda _: None,
            {"num_key_value_heads": 3},
            "num_key_value_heads: 3 must divide num_attention_heads",
        ),
        (
            lambda _: None,
            {"vocab_size": 10**15},
            "vocab_size: Input should be less than or equal to 16777216",
        ),
        (
            lambda _: None,
            {"vocab_size": 1 << 24, "hidden_size": 1 << 24},
            "vocab_size: a matrix of 16777216 x 16777216 has more than",
        ),
        (lambda _: None, {"head_dim": 1 << 24, "hidden_size": 1 << 20}, "num_attention_heads: a matrix of"),
        (lambda _: None, {"num_hidden_layers": 10**7}, "num_hidden_layers: Input should be less"),
        (lambda _: None, {"hidden_act": "gelu"}, "hidden_act: Input should be 'silu'"),
        (lambda _: None, {"model_type": "gemma"}, "model_type 'gemma' is not served; served: llama"),
        (
            lambda _: None,
            {"rope_parameters": {"rope_type": "yarn"}},
            "rope_parameters.*'default' or 'llama3'",
        ),
        (
            lambda _: None,
            {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_scaling.*'default' or 'llama3'",
        ),
        (
            lambda _: None,
            {"rope_scaling": {"rope_type": "llama3", "factor": 2.0}},
            "rope_scaling: differs from rope_parameters",
        ),
        (
            lambda _: None,
            {"rope_parameters": {"rope_type": "llama3", "low_freq_factor": 4.0}},
            "high_freq_factor: 4.0 must be above low_freq_factor",
        ),
        (lambda _: None, {"partial_rotary_factor": 0.5}, "partial_rotary_factor: Input should be 1"),
        (
            lambda one: one.update({"model.norm.weight": torch.zeros(16).to(torch.float8_e4m3fn)}),
            {},
            "float8_e4m3fn, expected float16, bfloat16",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused(
    change: Callable[[dict[str, torch.Tensor]], None], config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = save(tmp_path, "llama", change)
    if config:
        body = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**body, **config}))
    with pytest.raises(ModelError, match=words or r"has the tensor model\.layers\.1\."):
        load(folder)


def test_a_model_without_memory_for_its_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("you tried to allocate too much")

    folder = save(tmp_path, "llama")
    monkeypatch.setattr(torch.nn.Module, "to_empty", full)
    with pytest.raises(ModelError, match=r"no memory for \d+ weights, with vocab_size \d+, .*too much"):
        load(folder)


def test_null_is_no_rope(tmp_path: Path) -> None:
    folder = save(tmp_path, "llama")
    body = json.loads((folder / "config.json").read_text())
    old = {**body, "rope_parameters": None, "rope_scaling": body["rope_parameters"]}
    assert llama_files.read(folder, old) == llama_files.read(folder, body)
    assert llama_files.read(folder, {**body, "rope_parameters": None}) != llama_files.read(folder, body)
