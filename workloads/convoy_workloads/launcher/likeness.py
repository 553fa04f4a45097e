"""Why a fork of the zygote would differ from a fresh interpreter, so that a rank has to start cold.

A running interpreter cannot take back what it read at its start: variables of the environment, and the
modules it has imported. The environments of zygote and ranks come from the same container, so most ranks
differ in nothing that matters here.
"""
# ruff: noqa: PTH109, PTH112, PTH118, PTH120, PTH208 - as few imports as a fresh interpreter

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SINGLE_THREADED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Sizes of thread pools: 1 in the zygote, whose forks set those of their rank."""

_READ_AT_START = re.compile(
    r"PYTHON|LD_|LC_|LANG$|LANGUAGE$|TZ$|TZDIR$|LOCPATH$|MALLOC_|GLIBC_TUNABLES$"
    r"|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|NPY_|NUMPY_|DNNL_|ONEDNN_|ATEN_|PYTORCH_|TORCH"
)
"""Variables that the C library, the interpreter, or what the zygote imports reads once."""
_READ_LATER = re.compile(r"TORCHELASTIC_|TORCH_NCCL_|TORCH_GLOO_|TORCH_FR_")
"""Read as a process group forms."""
_FRESH_ONLY = (
    "PYTHONDEBUG",
    "PYTHONDEVMODE",
    "PYTHONDUMPREFS",
    "PYTHONDUMPREFSFILE",
    "PYTHONINSPECT",
    "PYTHONMALLOCSTATS",
    "PYTHONPERFSUPPORT",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONTRACEMALLOC",
    "PYTHONVERBOSE",
    "PYTHON_PERF_JIT_SUPPORT",
)
"""Variables that make the interpreter report on its own start, or change its end."""


@dataclass(frozen=True)
class Zygote:
    """A zygote's facts that a rank is compared with."""

    environment: Mapping[str, str]
    """Its variables at its start."""
    modules: Mapping[str, str]
    """Top-level modules that it has imported from files, and the folder that holds each."""
    unfit: str = ""
    """Why nothing may be forked from it; empty when all is well."""


def why_cold(environment: Mapping[str, str], beside: Collection[str], zygote: Zygote) -> str:
    """Return why a rank cannot be a fork of the zygote; empty when it can.

    `environment`: the rank's; `beside`: modules of the folder that comes first in its `sys.path` and that
    hide those which the zygote has imported.
    """
    if zygote.unfit:
        return zygote.unfit
    for name in _FRESH_ONLY:
        if environment.get(name):
            return f"{name} is set"
    differing = {
        name
        for name in {*environment, *zygote.environment}
        if environment.get(name) != zygote.environment.get(name)
    }
    for name in sorted(differing):
        if name not in SINGLE_THREADED and _READ_AT_START.match(name) and not _READ_LATER.match(name):
            return f"{name} is read at the start of a process, and the rank's value is its own"
    for name in SINGLE_THREADED:
        if not environment.get(name, "1").isdecimal():
            return f"{name}={environment[name]} is no number"
    if beside:
        return f"{sorted(beside)[0]} beside the program hides a module that is imported already"
    return ""


def hidden_by(folder: str, zygote: Zygote) -> set[str]:
    """Return names of modules in `folder` that the zygote has imported from elsewhere."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return set()
    suffixes = importlib.machinery.all_suffixes()
    found = set()
    for entry in entries:
        name = entry.partition(".")[0]
        if zygote.modules.get(name, folder) == folder:
            continue
        inner = [os.path.join(folder, entry, "__init__" + suffix) for suffix in suffixes]
        if entry[len(name) :] in suffixes or (entry == name and any(map(os.path.isfile, inner))):
            found.add(name)
    return found


def imported(modules: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the folders of the top-level modules among `sys.modules` items; built-in ones have none."""
    folders = {}
    for name, module in modules:
        file = getattr(module, "__file__", None)
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if "." in name or name == "__main__" or not file or origin in ("built-in", "frozen"):
            continue
        folder = os.path.dirname(os.path.realpath(file))
        folders[name] = os.path.dirname(folder) if hasattr(module, "__path__") else folder
    return folders


def first_folder(kind: str, target: str) -> str:
    """Return the folder that a fresh interpreter puts first in `sys.path`; empty where it puts none.

    `target`: path of the file, unless `kind` is a module.
    """
    if kind != "module" and os.path.isdir(target):
        return os.path.realpath(target)
    if getattr(sys.flags, "safe_path", False):
        return ""
    try:
        return os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(target))
    except OSError:  # the working directory has been deleted
        return ""
