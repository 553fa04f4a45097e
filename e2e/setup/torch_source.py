"""Selects the build of PyTorch that pip installs.

The registry's default wheel contains gigabytes of CUDA, which runs on CPUs do not need. The module uses
only the standard library, because it runs before the Python environment exists.
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
    """Return True if the user selects PyTorch's build with CUDA by CONVOY_CUDA=1."""
    return os.environ.get("CONVOY_CUDA") == "1"


def pinned_version() -> str:
    """Return the version of PyTorch that constraints.txt pins."""
    found = re.search(r"^torch==(\S+)", CONSTRAINTS.read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"{CONSTRAINTS.name} does not pin torch")
    return found[1]


def no_cpu_build(python_tag: str = THIS_PYTHON) -> str:
    """Return the error message for a machine that cannot get PyTorch's build for CPUs."""
    return (
        "PyTorch for CPUs is not available: no folder in CONVOY_WHEELS or PIP_FIND_LINKS has"
        f" torch-{pinned_version()}+cpu-{python_tag}-*.whl, and {CPU_INDEX} does not answer."
        " Set CONVOY_WHEELS to a folder with that wheel, or give this machine access to the index;"
        " CONVOY_CUDA=1 selects the build with CUDA, which adds gigabytes to each image"
    )


def wheel_folders() -> list[Path]:
    """Return the folders in `PIP_FIND_LINKS` and `CONVOY_WHEELS` that exist."""
    named = f"{os.environ.get('CONVOY_WHEELS', '')} {os.environ.get('PIP_FIND_LINKS', '')}".split()
    return [Path(folder).resolve() for folder in named if Path(folder).is_dir()]


def pip_arguments(python_tag: str = THIS_PYTHON, timeout_seconds: float = 5.0) -> list[str]:
    """Return the arguments that make pip install PyTorch's build for CPUs, or with CUDA if `wants_cuda()`.

    A build in a wheel folder is preferred to one in the index. The list is empty if no build for CPUs can
    be found; pip would then install the registry's default wheel.
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
    """Return the builds of the pinned version in a folder that fit this Python, such as `2.13.0+cpu`."""
    pinned = pinned_version()
    versions = {wheel.name.split("-")[1] for wheel in folder.glob(f"torch-*-{python_tag}-*.whl")}
    return sorted(one for one in versions if one.partition("+")[0] == pinned)


def index_answers(timeout_seconds: float) -> bool:
    """Return True if PyTorch's index of CPU builds answers."""
    try:
        with urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=timeout_seconds):
            return True
    except (urllib.error.URLError, TimeoutError, OSError):
        return False
