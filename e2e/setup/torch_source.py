"""The source of PyTorch for pip: the registry's default wheel adds gigabytes of CUDA, which CPU runs do not
need.

The module uses only the standard library, because it runs before any environment exists.
"""

from __future__ import annotations

import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
THIS_PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"


def wants_cuda() -> bool:
    """Return True if CONVOY_CUDA=1 requests PyTorch's build with CUDA."""
    return os.environ.get("CONVOY_CUDA") == "1"


def pinned_version() -> str:
    """Return PyTorch's version in constraints.txt."""
    found = re.search(r"^torch==(\S+)", CONSTRAINTS.read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"{CONSTRAINTS.name} does not pin torch")
    return found[1]


def no_cpu_build(python_tag: str = THIS_PYTHON) -> str:
    """Return the error message for a machine that has no access to PyTorch's build for CPUs."""
    return (
        "PyTorch for CPUs is not available: no folder in CONVOY_WHEELS or PIP_FIND_LINKS has"
        f" torch-{pinned_version()}+cpu-{python_tag}-*.whl, and {CPU_INDEX} does not answer."
        " Set CONVOY_WHEELS to a folder with that wheel, or give this machine access to the index;"
        " CONVOY_CUDA=1 selects the build with CUDA, which adds gigabytes to each image"
    )


def wheel_folders() -> list[Path]:
    """Return the existing folders that `PIP_FIND_LINKS` and `CONVOY_WHEELS` name."""
    named = f"{os.environ.get('CONVOY_WHEELS', '')} {os.environ.get('PIP_FIND_LINKS', '')}".split()
    return [Path(folder).resolve() for folder in named if Path(folder).is_dir()]


def pip_arguments(python_tag: str = THIS_PYTHON, timeout_seconds: float = 5.0) -> list[str]:
    """Return pip's arguments for PyTorch's build for CPUs, or for the build with CUDA if `wants_cuda()`.

    The build comes from a wheel folder, or else from its index. The list is empty if no build for CPUs is
    available. pip would then install the registry's own wheel.
    """
    for folder in wheel_folders():
        for version in _builds(folder, python_tag):
            if version.endswith("+cpu") != wants_cuda():
                return ["--find-links", str(folder), f"torch==={version}"]
    if wants_cuda():
        return [f"torch==={pinned_version()}"]
    if index_answers(timeout_seconds):
        return ["--extra-index-url", CPU_INDEX, f"torch==={pinned_version()}+cpu"]
    return []


def _builds(folder: Path, python_tag: str) -> list[str]:
    """Return the pinned version's builds in a folder that fit a Python, such as `2.13.0+cpu`."""
    pinned = pinned_version()
    versions = {wheel.name.split("-")[1] for wheel in folder.glob(f"torch-*-{python_tag}-*.whl")}
    return sorted(one for one in versions if one.partition("+")[0] == pinned)


def index_answers(timeout_seconds: float) -> bool:
    """Return True if PyTorch's index of builds for CPUs answers."""
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=timeout_seconds):
            return True
    except (urllib.error.URLError, TimeoutError, OSError):
        return False
