"""The files of a job as the state that a checkpoint holds: one tensor of bytes for each file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

EXTRA = "files"
"""Name of this state among the saved objects. A file's tensor is named `extra.files.<name>`."""


class FileState:
    """Files by name, with `state_dict` and `load_state_dict`."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def state_dict(self) -> dict[str, Any]:
        """Return the bytes of each file."""
        return {
            name: torch.frombuffer(bytearray(content), dtype=torch.uint8)
            for name, content in self._files.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: a restarted job has computed the same files again."""


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files to a folder. Each file is replaced at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        beside = folder / f".{name}"
        beside.write_bytes(content)
        beside.replace(folder / name)
