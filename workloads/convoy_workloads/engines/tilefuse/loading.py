"""The model that the engine serves: its files, quantised now if they are not, packed once, and mapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from convoy_workloads.engines.lm import models
from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.lm.llama import Llama
from convoy_workloads.engines.lm.models import LoadedModel
from convoy_workloads.engines.lm.params import Params as LanguageModelParams
from convoy_workloads.engines.lm.tensor_files import CONFIG, read_config
from convoy_workloads.engines.tilefuse import cache, packed_folder, quantised_files
from convoy_workloads.engines.tilefuse.formats import FIELD
from convoy_workloads.engines.tilefuse.formats import read as read_format
from convoy_workloads.engines.tilefuse.packed_folder import Index
from convoy_workloads.engines.tilefuse.packed_linear import KERNELS, Counters, Layers, fell_back
from convoy_workloads.engines.tilefuse.packed_model import PackedTransformer
from convoy_workloads.engines.tilefuse.params import Params, Quant
from convoy_workloads.engines.tilefuse.quantise import Request, quantise
from convoy_workloads.kernels import dispatch
from convoy_workloads.kernels.dispatch import Selection
from convoy_workloads.kernels.errors import KernelError
from convoy_workloads.kernels.weight_only import Product
from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.serving.renewing import renewing
from convoy_workloads.tensors.whole import ShardError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(path: Path | None, params: Params, counters: Counters, renew: Callable[[], None]) -> LoadedModel:
    """Return the model in the folder `path`, or the engine's own model if `path` is None.

    Raises ModelError, with the file, the field or the tensor, if the model cannot be used.
    """
    quant = params.quant
    config = _config(path)
    if quant.scheme == "bf16":
        if FIELD in config:
            raise ModelError(
                f"params.quant.scheme: bf16 does not fit the model in {path}, which is quantised: set it to "
                f"{read_format(config[FIELD])[0].scheme}"
            )
        return models.load(path, language_model(params), torch.device("cpu"), renew)
    selection = _select(quant, renew)
    folder, index = packed_form(path, params, renew)
    layers = Layers(DTYPES[params.dtype], quant.isa, params.threads, counters)
    model = packed_folder.read(folder, index, layers, renew)
    reasons = {name: one.message for name, one in selection.rejected.items()}
    twin = fell_back(selection, quant.isa)
    log_line(
        f"{'warning: ' if twin else ''}kernel {quant.scheme} uses {selection.instruction_set}"
        + "".join(f"; not {name}: {reason}" for name, reason in reasons.items())
    )
    facts = {
        **index.facts,
        "quantisation": {"scheme": index.scheme, "group_size": index.group_size, "bytes": _bytes(model)},
        "kernel": {
            "name": quant.scheme,
            "instruction_set": selection.instruction_set,
            "fallback": twin,
            "not_used": reasons,
        },
    }
    source = str(facts.pop("source", "")) or f"the model in {path}"
    return LoadedModel(model, models.tokenizer(path, model.shape.vocabulary), source, facts)


def packed_form(path: Path | None, params: Params, renew: Callable[[], None]) -> tuple[Path, Index]:
    """Return the folder of a model's packed form, with its index. The packed form is made if the cache lacks
    it. Raises ModelError, with the field, if the model cannot be packed.
    """
    config = _config(path)
    return _quantised(path, config, params, renew) if FIELD in config else _floats(path, params, renew)


def _select(quant: Quant, renew: Callable[[], None]) -> Selection[Product]:
    """Return the kernel. If its library must be built, that takes seconds."""
    try:
        # The call ends, because the compiler has a deadline.
        return renewing(renew, lambda: dispatch.select(KERNELS[quant.scheme], quant.isa))
    except KernelError as error:
        raise ModelError(f"params.quant.isa: {error}") from error


def language_model(params: Params) -> LanguageModelParams:
    """Return the parameters of lm for a model that is not quantised."""
    return LanguageModelParams.model_validate(
        {name: getattr(params, name) for name in LanguageModelParams.model_fields}
        | {"threads": max(1, params.threads)}
    )


def _config(path: Path | None) -> dict[str, Any]:
    file = path / CONFIG if path is not None else None
    return read_config(file) if file is not None and file.is_file() else {}


def _quantised(
    path: Path | None, config: Mapping[str, Any], params: Params, renew: Callable[[], None]
) -> tuple[Path, Index]:
    """Return the packed form of a model whose files are quantised."""
    assert path is not None  # noqa: S101 - there is a config.json
    form, _ = read_format(config[FIELD])
    if form.scheme != params.quant.scheme:
        raise ModelError(
            f"params.quant.scheme: {params.quant.scheme} differs from that of the model in {path}: set it to "
            f"{form.scheme}"
        )
    packed = path / quantised_files.PACKED
    index = packed_folder.read_index(packed)
    if index is not None and index.source == quantised_files.mark_of(path):
        return packed, index
    if packed.exists():
        log_line(f"warning: {packed} does not belong to the weights beside it; they are packed again")

    def make(folder: Path) -> None:
        content = quantised_files.read(path, config, DTYPES[params.dtype], renew)
        packed_folder.write(folder, content, key, {"trained": True}, renew)

    key = cache.identity(path, {"dtype": params.dtype})
    try:
        return cache.packed(key, make)
    except ShardError as error:
        raise ModelError(f"the model in {path} cannot be read: {error}") from error


def _floats(path: Path | None, params: Params, renew: Callable[[], None]) -> tuple[Path, Index]:
    """Return the packed form of a model whose files are not quantised, or of a model with random weights."""
    quant = params.quant
    samples = quant.calibration_samples if path is not None else 0

    def make(folder: Path) -> None:
        given = language_model(params).model_copy(update={"dtype": "float32"})
        loaded = models.load(path, given, torch.device("cpu"), renew)
        model = loaded.model
        assert isinstance(model, GPTLayers | Llama)  # noqa: S101 - these are lm's families
        wanted = Request(quant.scheme, quant.group_size, samples, quant.clip, DTYPES[params.dtype])
        content, outcomes = quantise(model, loaded.tokenizer, wanted, lambda _: renew())
        note = (
            f"quantised at load with {samples} samples"
            if samples
            else "quantised at load, to the nearest codes"
        )
        errors = [one.after for one in outcomes]
        worst = {"largest_error": max(errors)} if errors else {}
        facts = {**loaded.facts, "source": f"{loaded.source}; {note}", **worst}
        packed_folder.write(folder, content, key, facts, renew)

    own = (
        {}
        if path is not None
        else params.model_dump(
            include={"context", "layers", "width", "heads", "architecture", "kv_heads", "feed", "seed"}
        )
    )
    settings = quant.model_dump(include={"scheme", "group_size", "clip"}) | {"samples": samples, **own}
    key = cache.identity(path, settings | {"dtype": params.dtype, "heads": params.heads})
    return cache.packed(key, make)


def _bytes(model: PackedTransformer) -> int:
    return sum(one.packed_bytes for one in model.packed)
