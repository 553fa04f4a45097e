"""Checks whether a fork of the zygote would behave differently from a fresh interpreter. If so, the rank
must start cold.

An interpreter reads variables and imports modules at its start, and cannot undo this later. The zygote and
the ranks get their environment from the same container, so most ranks pass the check.
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
"""Variables for the size of thread pools. They are 1 in the zygote. A fork sets the sizes for its rank."""

_READ_AT_START = re.compile(
    r"PYTHON|LD_|LC_|LANG$|LANGUAGE$|TZ$|TZDIR$|LOCPATH$|MALLOC_|GLIBC_TUNABLES$"
    r"|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|GOTO_|BLIS_|NPY_|NUMPY_|DNNL_|ONEDNN_|ATEN_|PYTORCH_|TORCH"
)
"""Names of variables that the C library, the interpreter, or a module imported by the zygote reads only
once.
"""
_READ_LATER = re.compile(r"TORCHELASTIC_|TORCH_NCCL_|TORCH_GLOO_|TORCH_FR_")
"""Names of variables that are read when a process group forms, so zygote and rank may have different
values.
"""
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
"""Variables that make the interpreter report on its own start, or change how the interpreter ends."""


@dataclass(frozen=True)
class ZygoteState:
    """Facts about a zygote that decide which ranks it can fork."""

    environment: Mapping[str, str]
    """The environment of the zygote at its start."""
    modules: Mapping[str, str]
    """Folder of each top-level module that the zygote has imported from a file, by name of the module."""
    unfit: str = ""
    """Reason why the zygote cannot fork any rank; empty if it may fork ranks."""


def cold_start_reason(environment: Mapping[str, str], shadowed: Collection[str], zygote: ZygoteState) -> str:
    """Return the reason why a rank cannot be a fork of the zygote; an empty text if it can be.

    `environment` has the rank's variables. `shadowed` has the modules that the zygote has imported, but
    that a fresh interpreter would import from the program's own folder.
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
            return f"{name} is read at the start of a process, and the rank's value differs from the zygote's"
    for name in SINGLE_THREADED:
        if not environment.get(name, "1").isdecimal():
            return f"{name}={environment[name]} is not a number"
    if shadowed:
        return f"{min(shadowed)} beside the program shadows a module that the zygote has already imported"
    return ""


def shadowed_modules(folder: str, zygote: ZygoteState) -> set[str]:
    """Return the names of the modules in `folder` that the zygote has already imported from another folder.
    A fresh interpreter would import them from `folder`.
    """
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


def module_folders(modules: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the folder of each top-level module among the items of `sys.modules`. Built-in modules have no
    folder and are left out.
    """
    folders = {}
    for name, module in modules:
        file = getattr(module, "__file__", None)
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        if "." in name or name == "__main__" or not file or origin in ("built-in", "frozen"):
            continue
        folder = os.path.dirname(os.path.realpath(file))
        folders[name] = os.path.dirname(folder) if hasattr(module, "__path__") else folder
    return folders


def first_path_folder(kind: str, target: str) -> str:
    """Return the folder that a fresh interpreter puts first in `sys.path`; an empty text if it adds no
    folder.

    `target` is the path of the program, unless `kind` is "module".
    """
    if kind != "module" and os.path.isdir(target):
        return os.path.realpath(target)
    if getattr(sys.flags, "safe_path", False):
        return ""
    try:
        return os.getcwd() if kind == "module" else os.path.dirname(os.path.realpath(target))
    except OSError:  # The working directory has been deleted.
        return ""
