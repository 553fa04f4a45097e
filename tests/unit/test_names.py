"""Tests of names and docstrings: no function has a vague verb, each word means one thing, and docstrings
begin with a noun phrase or a verb.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.reading.sample import ROOT, docstrings, sources

VAGUE_VERB = re.compile(
    r"(looks?|looked|says?|said|tells?|told|hears?|heard|takes?|took|taken|asks?|asked|begins?|began"
    r"|forgets?|forgot|gone|answers?|answered|folds?|folded)"
)
"""Pattern of verbs that could mean many different acts. Name a function by its act instead, such as poll or
notify.
"""
RESERVED_CLASS = re.compile(
    r"(Watch|Line|Recorder|Presence|Keeper|Gate|Place|Told|Said|Seen|Sight|Answer|World|Wish|Flight|Beside"
    r"|Facts|Holding|Vault|Known)"
)
"""Pattern of class names that could mean several things. At most one class of the product may have each
name.
"""
WORDS_OF_ONE_THING = (
    (
        r"evict(?!ion|_pod|pod)",
        "controllers/convoy_controllers/guard",
        "swap: the move of a pod off a slow node",
    ),
    (
        r"slot",
        "agents/convoy_agents/tiercheck/buffers.py",
        "buffer: memory; a slot is a pod's place in a job",
    ),
    (
        r"slot",
        "workloads/convoy_workloads/runtime/tiers/buffers.py",
        "buffer: a slot is a pod's place in a job",
    ),
    (r"sweep", "agents/convoy_agents/tiercheck", "garbage collection: a sweep tests the health of nodes"),
    (r"warrant", "", "slot token"),
    (r"vouch", "", "attest"),
)
"""Tuples of a pattern of identifiers, the folder or file in which such identifiers are not allowed, and the
word to use instead.
"""
WRONG_OPENINGS = re.compile(r"(What|Who|Whose|Whether|How|Of|By|For which)\b")


@cache
def parsed() -> dict[str, ast.Module]:
    """Return the syntax tree of each file, by its path from the root of the checkout."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sources()}


def definitions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Yield every function and class with the path of its file."""
    for path, tree in parsed().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield path, node


def identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each definition, parameter and assigned variable in a file."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name


def vague(name: str) -> bool:
    """Return True if the first word of a function's name is a vague verb."""
    return VAGUE_VERB.fullmatch(name.strip("_").split("_")[0]) is not None


@pytest.mark.parametrize(("name", "expected"), [("_say_valid", True), ("told", True), ("takeoff", False)])
def test_a_vague_verb_is_found_as_the_first_word(name: str, expected: bool) -> None:
    assert vague(name) is expected


def test_no_function_is_named_by_a_vague_verb() -> None:
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in definitions()
        if not isinstance(node, ast.ClassDef) and vague(node.name)
    ]
    assert not found


def test_a_reserved_name_belongs_to_one_class() -> None:
    places: dict[str, list[str]] = {}
    for path, node in definitions():
        if (
            isinstance(node, ast.ClassDef)
            and RESERVED_CLASS.fullmatch(node.name)
            and not path.startswith("tests/")
        ):
            places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert not {name: found for name, found in places.items() if len(found) > 1}


@pytest.mark.parametrize(("pattern", "folder", "instead"), WORDS_OF_ONE_THING)
def test_a_word_names_one_thing(pattern: str, folder: str, instead: str) -> None:
    assert (ROOT / folder).exists()
    found = [
        f"{path}:{line} {name}"
        for path, tree in parsed().items()
        if Path(path).is_relative_to(folder) and not path.endswith("test_names.py")
        for line, name in identifiers(tree)
        if re.search(pattern, name, re.IGNORECASE)
    ]
    assert not found, f"write {instead}"


def test_docstrings_open_with_a_noun_phrase_or_a_verb() -> None:
    found = [
        f"{path}:{text.line}: {text.text.splitlines()[0]}"
        for path, tree in parsed().items()
        for text in docstrings(ROOT / path, tree)
        if WRONG_OPENINGS.match(text.text)
    ]
    assert not found
