"""Where pip takes PyTorch from: the registry's own wheel brings gigabytes of CUDA that no CPU run needs.

Used with the standard library alone, before any environment exists.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def wheel_folders() -> list[Path]:
    """The folders that `PIP_FIND_LINKS` and `CONVOY_WHEELS` name, and that exist."""
    named = f"{os.environ.get('CONVOY_WHEELS', '')} {os.environ.get('PIP_FIND_LINKS', '')}".split()
    return [Path(folder).resolve() for folder in named if Path(folder).is_dir()]


def pip_arguments(timeout_seconds: float = 5.0) -> list[str]:
    """Arguments for pip: a wheel folder that holds torch, else the CPU index if it answers, else none."""
    for folder in wheel_folders():
        if any(folder.glob("torch-*.whl")):
            return ["--find-links", str(folder)]
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=timeout_seconds):
            return ["--extra-index-url", CPU_INDEX]
    except (urllib.error.URLError, TimeoutError, OSError):
        return []
