"""Tests that an image installs every package that its program imports."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = canonicalize_name(PROJECT["name"])
SHARED = ("torch", "scipy.stats", "sklearn", "pandas", "skops.io", "aiohttp", "kubernetes.client")
"""Modules of other projects that take long to import, and that several programs use."""
PROGRAM = """
import importlib, json, os, pkgutil, sys, traceback

tasks, base, shared = json.loads(sys.argv[1])

class Absent:
    def __init__(self, names):
        self.names = frozenset(names)
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def run(modules, absent):
    for name in list(sys.modules):
        if name.partition(".")[0] in absent:
            del sys.modules[name]
    sys.meta_path.insert(0, Absent(absent))
    for name in modules:
        importlib.import_module(name)

# All programs have the packages that convoy_crds may use, so it is imported once for all.
sys.meta_path.insert(0, Absent(base))
import convoy_crds
for one in pkgutil.walk_packages(convoy_crds.__path__, "convoy_crds."):
    importlib.import_module(one.name)
del sys.meta_path[0]
for name in shared:
    importlib.import_module(name)
for modules, absent in tasks:
    sys.stdout.flush()
    if not (child := os.fork()):
        error = ""
        try:
            run(modules, set(absent))
        except BaseException:
            error = traceback.format_exc()
        print(json.dumps(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Source code of a program that prints for each task the error of an import of its modules while the absent
packages cannot be imported; an empty text without an error.

Each task has a process of its own, which is forked after the imports that tasks share. Shared packages that
are absent in a task are removed from it first.
"""
TASKS = (
    (["convoy_operator.__main__"], "operator"),
    (["convoy_operator.dashboard.server"], "dashboard"),
    (["convoy_agents.__main__"], "agents"),
    (["convoy.cli.__main__"], "cli"),
    (["convoy.client"], "client"),
    (["convoy_workloads.engines.lm.engine"], "serving"),
    (["convoy_workloads.engines.sklearn.engine"], "sklearn"),
    (
        [
            "convoy_workloads.engines.experiment_analysis.engine",
            "convoy_workloads.engines.experiment_simulation.engine",
        ],
        "tools",
    ),
    (["convoy_workloads.engines.spotlight.engine"], "ray"),
)
"""Modules of the programs, and the extra that each program's image installs."""
IMPOSSIBLE = (
    (["convoy.client"], "agents", "kubernetes"),
    (["convoy_workloads.engines.lm.engine"], "operator", "torch"),
    (["convoy_workloads.engines.sklearn.engine"], "serving", "sklearn"),
)
"""Modules, an extra that lacks a package which they import, and the package."""


@cache
def closure(requirement: str, environment: str = "") -> frozenset[str]:
    """Return the distributions that pip installs for a requirement. The distribution of the requirement
    itself is included.
    """
    wanted = Requirement(requirement)
    name = canonicalize_name(wanted.name)
    if wanted.marker and not wanted.marker.evaluate({"extra": environment}):
        return frozenset()
    if name == OWN:
        own = [one for extra in wanted.extras for one in PROJECT["optional-dependencies"][extra]]
        return frozenset[str]().union(*(closure(one) for one in own))
    found = {name}
    try:
        below = requires(name) or []
    except PackageNotFoundError:
        return frozenset(found)
    for extra in ("", *wanted.extras):
        found |= frozenset[str]().union(*(closure(one, extra) for one in below))
    return frozenset(found)


@cache
def installed() -> dict[str, frozenset[str]]:
    """Return the distributions of each importable name."""
    return {
        name: frozenset(map(canonicalize_name, distributions))
        for name, distributions in packages_distributions().items()
    }


def absent(extra: str = "") -> list[str]:
    """Return the names that cannot be imported where only an extra and the dependencies are installed."""
    more = PROJECT["optional-dependencies"][extra] if extra else []
    there = frozenset({OWN}).union(*(closure(one) for one in [*PROJECT["dependencies"], *more]))
    return [name for name, distributions in installed().items() if not there & distributions]


def test_programs_start_with_the_packages_of_their_extra() -> None:
    tasks = [(modules, absent(extra)) for modules, extra, *_ in (*TASKS, *IMPOSSIBLE)]
    assert all({"pytest", "mypy"} <= set(names) for _, names in tasks)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([tasks, absent(), SHARED])],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(errors) == len(tasks), done.stdout
    for (_, extra), error in zip(TASKS, errors, strict=False):
        assert not error, f"extra {extra}: {error}"
    for (_, _, package), error in zip(IMPOSSIBLE, errors[len(TASKS) :], strict=True):
        assert f"No module named '{package}" in error
