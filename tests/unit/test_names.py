"""Tests of names and docstrings: no function has a vague verb, each word means one thing, and docstrings
begin with a noun phrase or a verb.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from tests.reading import walk
from tests.reading.sample import ROOT, owned_docstrings, sources

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
SUSPECT = (
    re.compile(rf"def\s+_*{VAGUE_VERB.pattern}(_|\b)"),
    re.compile(rf"class\s+{RESERVED_CLASS.pattern}\b"),
    re.compile(rf"[\"'](\s|\\\n)*{WRONG_OPENINGS.pattern}"),
)
"""Patterns of which the text of a file matches one if the file has a name or a docstring that a test refuses
in all files.
"""


class Name(NamedTuple):
    """A definition, a parameter or an assigned variable."""

    path: str
    """Path of the file from the root of the checkout."""
    line: int
    kind: str
    """`function`, `class` or `value`."""
    name: str


@cache
def found() -> tuple[list[Name], list[str]]:
    """Return the names of the files that may have a wrong name, and where docstrings have a wrong opening.

    Only these files are parsed. To parse all files takes ten times as long.
    """
    every, wrong = list[Name](), list[str]()
    for file in sources():
        path, text = str(file.relative_to(ROOT)), file.read_text()
        if not suspect(path, text):
            continue
        tree = ast.parse(text)
        every += [Name(path, *one) for one in identifiers(tree)]
        wrong += [
            f"{path}:{line}: {text.splitlines()[0]}"
            for _, line, text in owned_docstrings(tree)
            if WRONG_OPENINGS.match(text)
        ]
    return every, wrong


def suspect(path: str, text: str) -> bool:
    """Return True if a file may have a name or a docstring that a test refuses. A word in a comment or a
    string makes a file suspect too.
    """
    return any(pattern.search(text) for pattern in SUSPECT) or any(
        path.startswith(folder) and re.search(pattern, text, re.IGNORECASE)
        for pattern, folder, _ in WORDS_OF_ONE_THING
    )


def identifiers(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the kind and the name of each definition, parameter and assigned variable."""
    for node in walk.nodes(tree):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.lineno, "value", node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, "value", node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, "function", node.name
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, "class", node.name


def vague(name: str) -> bool:
    """Return True if the first word of a function's name is a vague verb."""
    return VAGUE_VERB.fullmatch(name.strip("_").split("_")[0]) is not None


@pytest.mark.parametrize(("name", "expected"), [("_say_valid", True), ("told", True), ("takeoff", False)])
def test_a_vague_verb_is_found_as_the_first_word(name: str, expected: bool) -> None:
    assert vague(name) is expected


@pytest.mark.parametrize(
    "text",
    [
        "async def _say_valid(): ...",
        "def told(): ...",
        "class  Vault(Store): ...",
        'def f():\n    """\n    Whether it runs."""',
        "def f():\n    r'''\\\nOf all.'''",
        "most_Evicts = 1",
        "def f(warranted): ...",
    ],
)
def test_a_file_with_a_refused_name_or_docstring_is_parsed(text: str) -> None:
    assert suspect("controllers/convoy_controllers/guard/a.py", text)
    assert not suspect("controllers/convoy_controllers/guard/a.py", "def takeoff(): ...")


def test_no_function_is_named_by_a_vague_verb() -> None:
    every, _ = found()
    assert not [one for one in every if one.kind == "function" and vague(one.name)]


def test_a_reserved_name_belongs_to_one_class() -> None:
    places: dict[str, list[str]] = {}
    for one in found()[0]:
        if one.kind == "class" and RESERVED_CLASS.fullmatch(one.name) and not one.path.startswith("tests/"):
            places.setdefault(one.name, []).append(f"{one.path}:{one.line}")
    assert not {name: places for name, places in places.items() if len(places) > 1}


@pytest.mark.parametrize(("pattern", "folder", "instead"), WORDS_OF_ONE_THING)
def test_a_word_names_one_thing(pattern: str, folder: str, instead: str) -> None:
    assert (ROOT / folder).exists()
    wrong = [
        one
        for one in found()[0]
        if one.path.startswith(folder)
        and not one.path.endswith("test_names.py")
        and re.search(pattern, one.name, re.IGNORECASE)
    ]
    assert not wrong, f"write {instead}"


def test_docstrings_open_with_a_noun_phrase_or_a_verb() -> None:
    _, wrong = found()
    assert not wrong
