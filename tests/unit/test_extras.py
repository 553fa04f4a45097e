"""Tests that an image installs every package that its program imports."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN = canonicalize_name(PROJECT["name"])
ALONE = """
import importlib, sys
programs, absent = sys.argv[1].split(","), set(sys.argv[2:])
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for program in programs:
    importlib.import_module(program)
"""
"""Source code of a program that imports the modules `programs` while the modules `absent` cannot be
imported.
"""


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


@pytest.mark.parametrize(
    ("modules", "extra"),
    [
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
    ],
)
def test_programs_start_with_the_packages_of_their_extra(modules: list[str], extra: str) -> None:
    requirements = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    there = frozenset({OWN}).union(*(closure(one) for one in requirements))
    absent = [name for name, distributions in installed().items() if not there & distributions]
    assert {"pytest", "mypy"} <= set(absent)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, ",".join(modules), *absent],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
