"""An index as the state of a generation: a tensor of bytes for each file, and a list with their digests.

A TrainingJob of the engine aperon-index saves such generations. A replica writes the files of one to its
folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from convoy_crds.shown import error_line
from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.log import log_files
from convoy_workloads.engines.aperon.manifest import manifest_files, read_manifest
from convoy_workloads.engines.aperon.storage import flush_to_disk
from convoy_workloads.engines.lm.tensor_files import Tensors, open_tensors
from convoy_workloads.serving.protocol import ModelError
from convoy_workloads.tensors.whole import ShardError

EXTRA = "aperon"
"""Name of the index among the objects that a job saves."""
FORMAT = 1
_FILES, _CONTENTS = "files", "contents"
_PREFIX = f"extra.{EXTRA}."
_NAME = re.compile(r"manifest-\d{10}\.json|segment-\d{10}\.seg|segment-\d{10}-\d{1,10}\.live")
_PART = 16 << 20
"""Bytes that are read or written at a time."""
_SHOWN = 4
"""Tensors that an error names."""


def is_generation(path: Path) -> bool:
    """Return True if a model's folder holds a generation: its shards, or a file of safetensors that `convoy
    checkpoint export` has made of them.
    """
    return (path / "shards").is_dir() or path.suffix == ".safetensors" or any(path.glob("*.safetensors"))


def index_files(folder: Path) -> list[Path]:
    """Return the files of an index whose operations are all in segments. Raises CorruptFile if some are in
    its log alone.
    """
    manifests, logs = manifest_files(folder), log_files(folder)
    if not manifests:
        raise CorruptFile(folder, "no manifest")
    if logs and logs[-1][1].stat().st_size:
        raise CorruptFile(logs[-1][1], "it has operations that are in no segment: flush the index first")
    _, newest = manifests[0]
    return [newest, *(folder / name for name in sorted(read_manifest(newest).files))]


class IndexState:
    """The index in a folder as a state that a checkpoint holds, with `state_dict` and `load_state_dict`."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        self._contents = b""

    def show(self, folder: Path) -> int:
        """Use the index in a folder from now on. Its files must stay until the next call. Return the sum of
        their bytes.
        """
        files = index_files(folder)
        sizes = {one.name: one.stat().st_size for one in files}
        listed = {one.name: {"bytes": sizes[one.name], "sha256": _digest(one)} for one in files}
        self._contents = json.dumps({"format": FORMAT, "files": listed}).encode()
        self._files = files
        return sum(sizes.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the files as tensors that are mapped from the disk. It is empty before `show`."""
        if not self._files:
            return {}
        contents = torch.frombuffer(bytearray(self._contents), dtype=torch.uint8)
        return {_CONTENTS: contents, _FILES: {one.name: _mapped(one) for one in self._files}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: a job that goes on builds its next index from the source."""


def restore(path: Path, target: Path) -> dict[str, object]:
    """Write the index of a generation to an empty folder, durably. Return the facts of the generation.

    Raises ModelError if the generation is damaged or of another engine, and OSError.
    """
    try:
        tensors = open_tensors(path)
        for name, (size, sha256) in _contents(path, tensors).items():
            _write(path, tensors, name, target / name, (size, sha256))
    except ShardError as error:
        raise ModelError(f"the checkpoint in {path} is damaged: {error}") from error
    return dict(tensors.facts)


def _contents(path: Path, tensors: Tensors) -> dict[str, tuple[int, str]]:
    """Return size and digest of each file."""
    name = _PREFIX + _CONTENTS
    if name not in tensors.names:
        found = ", ".join(sorted(tensors.names)[:_SHOWN]) or "none"
        raise ModelError(
            f"the checkpoint in {path} holds no index of vectors (its tensors: {found}): "
            "spec.model.checkpoint must name a job of the engine aperon-index"
        )
    try:
        raw = json.loads(_bytes(path, tensors, name).tobytes())
        if raw["format"] != FORMAT:
            raise ModelError(
                f"the checkpoint in {path} has format {raw['format']}, and this engine reads format "
                f"{FORMAT}: use the same version of Convoy for both jobs"
            )
        found_files = {name: (int(one["bytes"]), str(one["sha256"])) for name, one in raw["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"the checkpoint in {path} is damaged: tensor {name}: {error_line(error)}"
        ) from error
    for one in found_files:
        if not _NAME.fullmatch(one):
            raise ModelError(f"the checkpoint in {path} is damaged: {one!r} is no file of an index")
    return found_files


def _write(path: Path, tensors: Tensors, name: str, file: Path, expected: tuple[int, str]) -> None:
    data = _bytes(path, tensors, f"{_PREFIX}{_FILES}.{name}")
    total = hashlib.sha256()
    with file.open("wb") as writer:
        for at in range(0, len(data), _PART):
            part = data[at : at + _PART].data
            total.update(part)
            writer.write(part)
        flush_to_disk(writer)
    if (len(data), total.hexdigest()) != expected:
        raise ModelError(f"the checkpoint in {path} is damaged: {name} has not the digest in its list")


def _bytes(path: Path, tensors: Tensors, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a tensor of bytes, as a view of its file."""
    if name not in tensors.names:
        raise ModelError(f"the checkpoint in {path} is damaged: tensor {name} is missing")
    tensor = tensors.get(name)
    if tensor.dtype is not torch.uint8 or tensor.dim() != 1:
        raise ModelError(
            f"the checkpoint in {path} is damaged: tensor {name} has type {tensor.dtype} and shape "
            f"{list(tensor.shape)}, expected uint8 and [bytes]"
        )
    found: np.ndarray[Any, np.dtype[np.uint8]] = tensor.numpy()
    return found


def _mapped(file: Path) -> torch.Tensor:
    # A private mapping is writable, as torch wants it. Nothing writes to it.
    return torch.from_numpy(np.memmap(file, np.uint8, mode="c"))


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
