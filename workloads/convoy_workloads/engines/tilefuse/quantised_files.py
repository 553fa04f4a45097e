"""Models in files with quantised matrices: reading them, and writing them with their configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from convoy_workloads.engines.lm import llama_files
from convoy_workloads.engines.lm.tensor_files import CONFIG, Tensors, copy_tensor, open_tensors
from convoy_workloads.engines.tilefuse import formats
from convoy_workloads.engines.tilefuse.blueprint import Blueprint, of_config
from convoy_workloads.engines.tilefuse.formats import FIELD, FORMATS, Format
from convoy_workloads.engines.tilefuse.groups import Codes, FormatError
from convoy_workloads.engines.tilefuse.packed_folder import Content, is_exact
from convoy_workloads.engines.tilefuse.search import Progress
from convoy_workloads.engines.tilefuse.structure import Matrix, structure
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import SafetensorsFile, write_tensors
from convoy_workloads.tensors.whole import ShardError

GPT = "gpt"
"""`model_type` of a model of the engine gpt."""
WEIGHTS = "model.safetensors"
PACKED = "packed"
"""Folder with the packed form of the weights, in the folder of a model that `convoy quantize` has made."""
MARK = "convoy.packed"
"""Name of the mark in the metadata of the weights."""


def read(path: Path, config: Mapping[str, Any], dtype: torch.dtype, renew: Callable[[], None]) -> Content:
    """Return the model in a folder with a `quantization_config`. Its matrices are read when they are packed.

    Raises ModelError, with the field or the tensor, if the model cannot be used. Raises OSError and
    ShardError for damaged files.
    """
    form, group_size = formats.read(config[FIELD])
    blueprint = _blueprint(path, config)
    tensors = open_tensors(path)
    if blueprint.family != GPT:
        own = llama_files.read(path / CONFIG, config)
        llama_files.check_names(path, own, tensors.names, (*form.names, *form.optional, "weight"))
    model = blueprint.model()
    for name, target in structure(model).others.items():
        copy_tensor(name, _get(path, tensors, name), target)
        renew()
    return Content(
        model,
        blueprint,
        lambda one: _codes(path, tensors, one, form, group_size),
        form.scheme,
        group_size,
        dtype,
    )


def write(
    folder: Path, content: Content, config: Mapping[str, Any], metadata: Mapping[str, str], progress: Progress
) -> str:
    """Write a model's quantised weights and its `config.json` to a folder. Return the mark of the weights,
    which their packed form has too.
    """
    form = FORMATS[content.scheme]
    found = structure(content.model)
    tensors = {
        name: one.detach().to(torch.float32 if is_exact(name) else content.dtype).contiguous()
        for name, one in found.others.items()
    }
    total = hashlib.sha256()
    for matrix in found.matrices:
        progress(matrix.key)
        start, codes = 0, content.codes(matrix)
        for array in (codes.codes, codes.scales, codes.zeros):
            total.update(np.ascontiguousarray(array).data)
        for name, outputs in matrix.parts:
            rows = slice(start, start + outputs)
            own = (codes.codes[rows], codes.scales[rows], codes.zeros[rows])
            arrays = form.tensors(Codes(*own, codes.bits, codes.group_size))
            tensors |= {f"{name}.{end}": torch.from_numpy(one) for end, one in arrays.items()}
            start += outputs
    mark = total.hexdigest()
    write_tensors(folder / WEIGHTS, tensors, {**metadata, MARK: mark})
    (folder / CONFIG).write_text(
        json.dumps({**config, FIELD: form.config(content.group_size)}, indent=2) + "\n"
    )
    return mark


def mark_of(folder: Path) -> str:
    """Return the mark of the weights in a folder; empty if they have none."""
    try:
        return SafetensorsFile(folder / WEIGHTS).metadata.get(MARK, "")
    except (OSError, ShardError):
        return ""


def gpt_config(blueprint: Blueprint) -> dict[str, Any]:
    """Return the `config.json` of a model of gpt."""
    return {"model_type": GPT, **blueprint.values}


def _blueprint(path: Path, config: Mapping[str, Any]) -> Blueprint:
    family = str(config.get("model_type", ""))
    if family in llama_files.FAMILIES:
        return of_config(llama_files.read(path / CONFIG, config))
    if family != GPT:
        served = ", ".join((*llama_files.FAMILIES, GPT))
        raise ModelError(f"{path / CONFIG}: model_type {family!r} is not served; served: {served}")
    values = {}
    for name in ("context", "layers", "width", "heads"):
        value = config.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{path / CONFIG}: {name}: {value!r} must be a positive integer")
        values[name] = value
    if values["width"] % values["heads"]:
        raise ModelError(f"{path / CONFIG}: heads: {values['heads']} must divide width={values['width']}")
    return Blueprint(GPT, values)


def _codes(path: Path, tensors: Tensors, matrix: Matrix, form: Format, group_size: int) -> Codes:
    """Return the codes of a matrix, whose parts are below each other."""
    parts = []
    for name, outputs in matrix.parts:
        if f"{name}.weight" in tensors.names:
            raise FormatError(
                f"tensor {name}.weight is not quantised. All matrices of the layers must be: quantise the "
                "model without modules_to_not_convert"
            )
        arrays = {end: _array(_get(path, tensors, f"{name}.{end}")) for end in form.names}
        arrays |= {
            end: _array(tensors.get(f"{name}.{end}"))
            for end in form.optional
            if f"{name}.{end}" in tensors.names
        }
        found = form.codes(name, arrays, group_size)
        if len(found.codes) != outputs:
            raise FormatError(
                f"tensor {name}.{form.names[0]} has {len(found.codes)} outputs, expected {outputs}"
            )
        parts.append(found)
    if len({part.codes.shape[1] for part in parts}) != 1:
        raise FormatError(f"the parts of {matrix.key} have different numbers of inputs")
    return Codes(
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.scales for part in parts]),
        np.concatenate([part.zeros for part in parts]),
        parts[0].bits,
        parts[0].group_size,
    )


def _get(path: Path, tensors: Tensors, name: str) -> torch.Tensor:
    if name not in tensors.names:
        raise ModelError(f"{path} lacks the tensor {name}")
    return tensors.get(name)


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    found: NDArray[Any] = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    return found
