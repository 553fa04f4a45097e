"""Makes a quantised generation of a model: the work of `convoy quantize`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from convoy_workloads.engines.lm import file_tokenizer, models
from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.llama import Llama
from convoy_workloads.engines.lm.params import Params
from convoy_workloads.engines.lm.tensor_files import CONFIG, read_config
from convoy_workloads.engines.tilefuse import calibration, packed_folder, quantised_files, sequences
from convoy_workloads.engines.tilefuse.packed_linear import Layers
from convoy_workloads.engines.tilefuse.quantise import Request, quantise
from convoy_workloads.engines.tilefuse.quantised_files import PACKED
from convoy_workloads.engines.tilefuse.search import Outcome
from convoy_workloads.kernels.threads import available_threads
from convoy_workloads.serving.protocol import ModelError

REPORT = "quantisation.json"
MEASURED = 64
"""Number of texts on which the loss is measured."""
_COPIED = (file_tokenizer.FILE, "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")


@dataclass(frozen=True)
class Report:
    """The result of a quantisation."""

    scheme: str
    group_size: int
    samples: int
    bytes_before: int
    """Bytes of the weights in float32."""
    bytes_after: int
    """Bytes of the quantised weights."""
    loss_before: float
    """Loss on held-out text in nats per token, in float32."""
    loss_after: float
    """The same with the packed weights."""
    matrices: Sequence[Outcome]

    @property
    def loss_change(self) -> float:
        """Return the relative change of the loss."""
        return self.loss_after / self.loss_before - 1


def make(source: Path, to: Path, wanted: Request, progress: Callable[[str], None], heads: int = 0) -> Report:
    """Write a quantised generation of the model in `source` to the new folder `to`. Return the report, which
    the folder has too.

    `heads`: number of attention heads, if the files do not contain it. Raises ModelError if the model cannot
    be used, and OSError if the folder cannot be written.
    """
    progress("reading the model")
    loaded = models.load(source, Params(heads=heads), torch.device("cpu"), lambda: None)
    model, tokenizer = loaded.model, loaded.tokenizer
    if not isinstance(model, GPTLayers | Llama):
        raise ModelError(f"{source}: models of this family cannot be quantised")
    module = model.model if isinstance(model, GPTLayers) else model
    before = sum(one.nbytes for one in module.parameters())
    windows = calibration.measuring(tokenizer, MEASURED, model.shape.context)
    progress("measuring the loss before")
    loss_before = sequences.loss(model, windows)
    content, outcomes = quantise(model, tokenizer, wanted, lambda key: progress(f"searching scales of {key}"))
    to.mkdir()
    config = (
        quantised_files.gpt_config(content.blueprint) if isinstance(model, GPTLayers) else _config(source)
    )
    facts = {name: one for name, one in loaded.facts.items() if name != "trained"}
    mark = quantised_files.write(
        to, content, config, {"generation": json.dumps(facts)}, lambda key: progress(f"writing {key}")
    )
    packed = to / PACKED
    packed.mkdir()
    noted = {"trained": True, **facts, "quantised_by": "convoy quantize"}
    packed_folder.write(packed, content, mark, noted, lambda: progress("packing the weights"))
    for name in _COPIED:
        if source.is_dir() and (source / name).is_file():
            shutil.copyfile(source / name, to / name)
    report = Report(
        wanted.scheme,
        wanted.group_size,
        wanted.samples,
        before,
        (to / quantised_files.WEIGHTS).stat().st_size,
        loss_before,
        _loss_after(packed, wanted.dtype, windows, progress),
        outcomes,
    )
    (to / REPORT).write_text(json.dumps(asdict(report), indent=1) + "\n")
    return report


def _loss_after(
    packed: Path, dtype: torch.dtype, windows: torch.Tensor, progress: Callable[[str], None]
) -> float:
    index = packed_folder.read_index(packed)
    if index is None:
        raise ModelError(f"{packed} has no valid index")
    layers = Layers(dtype, threads=available_threads())
    model = packed_folder.read(packed, index, layers, lambda: progress("measuring the loss after"))
    return sequences.loss(model, windows)


def _config(source: Path) -> Mapping[str, Any]:
    """Return the `config.json` of a model of the family Llama."""
    return read_config(source / CONFIG)
