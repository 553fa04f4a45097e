"""Tests that the operator never compares anything with a registered kind, because only controllers may know
the kinds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import convoy_operator.app
from convoy_crds.kinds import KINDS

OPERATOR = Path(convoy_operator.app.__file__).parent
NAMES = {name for kind in KINDS for name in (kind.name, kind.plural)}


def aliases(tree: ast.AST) -> set[str]:
    """Return the names that a module uses for the KIND of a model's module."""
    found = {"KIND"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names if one.name == "KIND"}
    return found


def named(node: ast.AST, known: set[str]) -> bool:
    """Return True if an expression is a registered kind or the name of one."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(named(one, known) for one in node.elts)
    if isinstance(node, ast.Constant):
        return node.value in NAMES
    if isinstance(node, ast.Attribute):
        return node.attr in known or (
            node.attr in ("name", "plural", "resource") and named(node.value, known)
        )
    return isinstance(node, ast.Name) and node.id in known


def comparisons(source: str) -> Iterator[int]:
    """Yield the line of every comparison with a registered kind in a module."""
    tree = ast.parse(source)
    known = aliases(tree)
    for node in ast.walk(tree):
        operands: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        if any(named(one, known) for one in operands):
            yield node.lineno


def test_no_comparison_with_a_registered_kind() -> None:
    found = {
        f"{path.relative_to(OPERATOR)}:{line}"
        for path in sorted(OPERATOR.rglob("*.py"))
        for line in comparisons(path.read_text())
    }
    assert not found


def test_comparisons_with_kinds_are_found() -> None:
    for text in (
        'key.kind == "TrainingJob"',
        "from x import KIND as JOB\nif key.kind in (JOB.name, other): pass",
        "key.kind != trainingjob.KIND.name",
        'match kind:\n    case "Engine": pass',
    ):
        assert list(comparisons(text)), text
    assert not list(comparisons("key.kind == other.kind"))
