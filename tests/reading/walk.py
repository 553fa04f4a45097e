"""Walks of syntax trees that visit less than `ast.walk`, for tests that read all files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LEAVES = (ast.expr_context, ast.Constant, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_PARTS = ("body", "handlers", "cases", "orelse", "finalbody")
"""Fields in which a statement has other statements."""


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but constants, operators and contexts, each node before those in it."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for value in node.__dict__.values():
            if isinstance(value, list):
                left += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                left.append(value)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the tree and all statements in it, each before those in it. Expressions are left out."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for name in _PARTS:
            # The body of a lambda or of a conditional expression is no list, but these are not visited.
            left += getattr(node, name, ())
