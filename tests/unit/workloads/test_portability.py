"""Launcher and runtime run in any image: old Python, no packages, torch only where it is there."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import convoy_workloads

PACKAGE = Path(convoy_workloads.__file__).parent
PARTS = ("launcher", "runtime", "runtime/folder")
SOURCES = sorted(path for part in PARTS for path in (PACKAGE / part).glob("*.py"))
NEED_TORCH = {"moments.py", "snapshot.py"}
"""Imported only by code that has torch."""


def test_there_are_sources() -> None:
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_module_is_python_3_9_and_imports_only_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    allowed = {"convoy_workloads"} | ({"torch"} if path.name in NEED_TORCH else set())
    for node in tree.body:
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )  # fmt: skip
        for name in names:
            top = name.partition(".")[0]
            assert top in sys.stdlib_module_names | allowed, f"{path.name} imports {name}"
            assert not name.startswith("convoy_workloads.") or name.split(".")[1] in ("launcher", "runtime")
    first = next((n for n in tree.body if not isinstance(n, ast.Expr)), None)
    annotated = [n for n in ast.walk(tree) if isinstance(n, ast.AnnAssign | ast.FunctionDef)]
    if annotated and path.name != "__init__.py":
        assert isinstance(first, ast.ImportFrom), f"{path.name}: annotations must stay strings for Python 3.9"
        assert first.module == "__future__"
