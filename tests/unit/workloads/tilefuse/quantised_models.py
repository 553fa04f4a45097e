"""Models, folders and engines for the tests of tilefuse. Their kernel is the numpy twin, which needs no
compiler.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from convoy_workloads.engines.gpt.model import GPT
from convoy_workloads.engines.lm import llama_files
from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.llama import Frequencies, Llama
from convoy_workloads.engines.lm.llama_files import Config
from convoy_workloads.engines.lm.transformer import Shape
from convoy_workloads.engines.tilefuse.engine import QuantisedLanguageModel
from convoy_workloads.engines.tilefuse.params import Params
from convoy_workloads.engines.tilefuse.structure import Model
from convoy_workloads.tensors.safetensors import write_tensors

SIZES = {"context": 48, "layers": 2, "width": 64, "heads": 4, "kv_tokens": 256, "block": 4}
CONFIG = Config(Shape(256, 48, 2, 64, 4, 2, 16), 128, 1e-5, Frequencies(), qkv_bias=True, tied=False)


def gpt(seed: int = 7) -> GPTLayers:
    """Return a model of gpt whose logits differ much, and whose channels differ in size."""
    torch.manual_seed(seed)
    found = GPT(48, 2, 64, 4)
    with torch.no_grad():
        for name, one in found.named_parameters():
            if one.dim() == 2 and name != "tokens.weight":
                one.mul_(4)
            if "norm" in name:
                one.mul_(torch.exp(torch.randn_like(one)))
            elif name.endswith("bias"):
                one.normal_(0, 0.1)
    return GPTLayers(found.eval())


def llama(seed: int = 7) -> Llama:
    """Return a model of the family Llama with biases and shared key-value heads."""
    torch.manual_seed(seed)
    found = llama_files.empty(CONFIG)
    with torch.no_grad():
        for name, one in found.named_parameters():
            one.copy_(torch.exp(torch.randn_like(one)) if "norm" in name else torch.randn_like(one) * 0.1)
    return found.eval()


def model(family: str) -> Model:
    return gpt() if family == "gpt" else llama()


def save(found: Model, folder: Path) -> Path:
    """Write a model in floats, as `convoy checkpoint export` or Hugging Face does."""
    folder.mkdir()
    if isinstance(found, GPTLayers):
        tensors = {name: one for name, one in found.model.state_dict().items() if name != "head.weight"}
        config: dict[str, Any] = {"heads": found.shape.heads}
    else:
        tensors = {"model.embed_tokens.weight": found.tokens.weight, "model.norm.weight": found.norm.weight}
        tensors["lm_head.weight"] = found.head.weight
        for number, layer in enumerate(found.layers):
            targets = llama_files._targets(layer, CONFIG)  # type: ignore[arg-type]
            tensors |= {f"model.layers.{number}.{name}": one.contiguous() for name, one in targets.items()}
        config = {
            "model_type": "qwen2",
            "vocab_size": 256,
            "max_position_embeddings": 48,
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
        }
    write_tensors(folder / "model.safetensors", {name: one.detach() for name, one in tensors.items()}, {})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def params(**values: Any) -> Params:
    quant = {"group_size": 32, "isa": "twin", "calibration_samples": 2, **values.pop("quant", {})}
    return Params.model_validate({**SIZES, "threads": 1, "max_sequences": 4, "quant": quant, **values})


def engine(path: Path | None, **values: Any) -> QuantisedLanguageModel:
    """Return a loaded engine."""
    torch.set_num_threads(1)
    found = QuantisedLanguageModel(params(**values), path)
    found.load(lambda: None)
    return found
