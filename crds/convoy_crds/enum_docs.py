"""Reads the docstrings of the members of enumerations from the source code."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from itertools import pairwise


def enum_docs(values: Sequence[str]) -> dict[str, str]:
    """Return the docstrings of an enumeration's members, by value. Members without a docstring are left
    out.

    The function searches the models for the enumeration that has exactly the values `values`. If there is
    none, it returns an empty mapping.
    """
    found = _enumerations().get(tuple(values))
    return dict(_documented(found)) if found is not None else {}


@cache
def _enumerations() -> dict[tuple[str, ...], type[StrEnum]]:
    """Return the enumerations of all loaded models, by the tuple of their values."""
    modules = [module for name, module in sys.modules.items() if name.startswith("convoy_crds.")]
    every = [one for module in modules for one in vars(module).values() if inspect.isclass(one)]
    return {tuple(map(str, one)): one for one in every if issubclass(one, StrEnum) and one is not StrEnum}


def _documented(enumeration: type[StrEnum]) -> Iterator[tuple[str, str]]:
    """Yield the value and docstring of each member that has a docstring."""
    (tree,) = (one for one in ast.parse(inspect.getsource(enumeration)).body if isinstance(one, ast.ClassDef))
    for before, after in pairwise(tree.body):
        match before, after:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                yield str(enumeration[name]), " ".join(text.split())
