"""A folder with a packed model: one file for each matrix, one for all other tensors, and an index.

The files are mapped into memory, so that a model needs the memory of its packed weights and no more, and
processes on one node share it. The index is written last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from convoy_workloads.engines.lm.gpt_layers import GPTLayers
from convoy_workloads.engines.tilefuse.blueprint import Blueprint
from convoy_workloads.engines.tilefuse.groups import Codes
from convoy_workloads.engines.tilefuse.packed_linear import Layers
from convoy_workloads.engines.tilefuse.packed_model import PackedTransformer
from convoy_workloads.engines.tilefuse.structure import Matrix, Model, structure
from convoy_workloads.kernels.errors import KernelError
from convoy_workloads.kernels.packed_file import open_packed, write_packed
from convoy_workloads.kernels.packing import LAYOUT, pack
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.safetensors import SafetensorsFile, write_tensors
from convoy_workloads.tensors.whole import ShardError

INDEX = "index.json"
OTHERS = "others.safetensors"
VERSION = 1
_READ_BYTES = 1 << 20


class Index(BaseModel):
    """The index of a folder with a packed model."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    version: int
    layout: str
    source: str
    """Identity of the files or parameters that the folder was made from."""
    scheme: str
    group_size: int
    dtype: str
    """Torch's name of the type of the embedding and the head."""
    family: str
    form: dict[str, Any]
    """The values of the model's Blueprint."""
    matrices: dict[str, str]
    """File of each matrix."""
    digests: dict[str, str]
    """SHA-256 digest of the tiles of each matrix. A copy that was interrupted may mix files of two models."""
    others: str
    """SHA-256 digest of the file with all other tensors."""
    facts: dict[str, Any]
    """Facts for the model's card."""


@dataclass(frozen=True)
class Content:
    """A model to pack. Its linear layers are not used, so they may have no values."""

    model: Model
    blueprint: Blueprint
    codes: Callable[[Matrix], Codes]
    scheme: str
    group_size: int
    dtype: torch.dtype
    """Type of the embedding and the head."""


def write(
    folder: Path, content: Content, source: str, facts: Mapping[str, Any], renew: Callable[[], None]
) -> None:
    """Write a packed model to an empty folder. Raises ModelError if it cannot be packed."""
    found = structure(content.model)
    files, digests = {}, {}
    for number, matrix in enumerate(found.matrices):
        codes = content.codes(matrix)
        files[matrix.key] = f"{number:04}.packed"
        try:
            tiles = pack(content.scheme, codes.codes, codes.scales, codes.zeros, codes.group_size)
            digests[matrix.key] = write_packed(folder / files[matrix.key], tiles)
        except KernelError as error:
            raise ModelError(f"the matrix {matrix.key} cannot be packed: {error}") from error
        renew()
    skipped = {f"{matrix.key}.weight" for matrix in found.matrices}
    tied = {"head.weight"} if _head_is_tied(content.model) else set[str]()
    others = {
        name: one.detach().to(torch.float32 if is_exact(name) else content.dtype)
        for name, one in found.model.named_parameters(remove_duplicate=False)
        if name not in skipped | tied
    }
    write_tensors(folder / OTHERS, others, {})
    index = Index(
        version=VERSION,
        layout=LAYOUT,
        source=source,
        scheme=content.scheme,
        group_size=content.group_size,
        dtype=str(content.dtype).removeprefix("torch."),
        family=content.blueprint.family,
        form=dict(content.blueprint.values),
        matrices=files,
        digests=digests,
        others=_digest(folder / OTHERS, renew),
        facts=dict(facts),
    )
    (folder / INDEX).write_text(index.model_dump_json(indent=1) + "\n")


def read_index(folder: Path) -> Index | None:
    """Return the index of a folder; None if there is none, or if this version does not read it."""
    try:
        found = Index.model_validate(json.loads((folder / INDEX).read_bytes()))
    except (OSError, ValueError, ValidationError):
        return None
    return found if (found.version, found.layout) == (VERSION, LAYOUT) else None


def read(folder: Path, index: Index, layers: Layers, renew: Callable[[], None]) -> PackedTransformer:
    """Map a packed model. All files are read once to compare their digests. Raises ModelError, with the file,
    if it cannot be used.
    """
    model = Blueprint(index.family, index.form).skeleton()
    found = structure(model)
    try:
        for matrix in found.matrices:
            packed = open_packed(folder / index.matrices[matrix.key], expected=index.digests[matrix.key])
            setattr(matrix.owner, matrix.attribute, layers.layer(packed))
            renew()
        others = folder / OTHERS
        if _digest(others, renew) != index.others:
            raise ModelError(f"{others}: its digest differs from that in {INDEX}: delete {folder}")
        file = SafetensorsFile(others)
    except (KernelError, OSError, KeyError, ShardError) as error:
        raise ModelError(
            f"the packed model in {folder} cannot be used: {error}. Delete this folder"
        ) from error
    for name in file.entries:
        _set(found.model, name, file.tensor(name), layers.dtype)
    if "head.weight" not in file.entries:
        _set(found.model, "head.weight", file.tensor("tokens.weight"), layers.dtype)
    return PackedTransformer(GPTLayers(found.model) if isinstance(model, GPTLayers) else model)  # type: ignore[arg-type]


def is_exact(name: str) -> bool:
    """Return True for a tensor that stays in float32: a norm or a bias."""
    return name.endswith(".bias") or "norm" in name


def _set(model: nn.Module, name: str, value: Tensor, dtype: torch.dtype) -> None:
    path, _, attribute = name.rpartition(".")
    kept = value.to(torch.float32 if is_exact(name) else dtype)
    setattr(model.get_submodule(path), attribute, nn.Parameter(kept, requires_grad=False))


def _head_is_tied(model: Model) -> bool:
    parts = model.model if isinstance(model, GPTLayers) else model
    return parts.head.weight is parts.tokens.weight


def _digest(path: Path, renew: Callable[[], None]) -> str:
    # Reads, and does not map: mapped pages would count as this process's memory.
    total = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            total.update(part)
            renew()
    return total.hexdigest()
