"""Test that the autoscaler is free of cluster state and of clocks. So tools and engines may import it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from convoy_controllers import autoscale

PACKAGE = "convoy_controllers.autoscale"
ALLOWED = sys.stdlib_module_names - {"asyncio", "datetime", "os", "random", "socket", "subprocess", "time"}
"""Modules of the standard library without a clock, chance, input or output."""


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_the_autoscaler_imports_nothing_of_the_cluster() -> None:
    files = sorted(Path(autoscale.__file__).parent.glob("*.py"))
    found = {name for path in files for name in imported(path)}
    assert f"{PACKAGE}.decision" in found
    others = {one for one in found if not one.startswith(f"{PACKAGE}.")}
    assert {one for one in others if one.split(".")[0] not in ALLOWED} == set()
