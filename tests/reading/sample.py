"""Draws docstrings and comments at random, for a reader who has not seen the code.

`python -m tests.reading.sample --seed 29 --count 100` prints each with its file, its line and what it
describes. The same seed draws the same texts from the same tree.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import random
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.reading import walk

ROOT = Path(__file__).parents[2]
FOLDERS = ("crds", "controllers", "operator", "agents", "workloads", "e2e", "tests")
DIRECTIVES = ("noqa", "type:", "!", "pragma", "fmt:", "--8<--")
"""Beginnings of comments that tools read."""
OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign)
"""Kinds of nodes that docstrings describe."""
LEAST_WORDS = 3
"""Shorter comments are not drawn."""


@dataclass(frozen=True)
class Text:
    """A docstring or a comment."""

    path: Path
    line: int
    about: str
    """The definition that the docstring describes, or the line beside the comment."""
    text: str


def sources() -> list[Path]:
    """Return our Python files, without generated ones, in a fixed order."""
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "_pb2" not in path.name
    ]


def docstrings(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of a module, its classes, functions and attributes."""
    for owner, line, text in owned_docstrings(tree):
        yield Text(path, line, described(owner), text)


def owned_docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, int, str]]:
    """Yield what each docstring describes, its first line and its text."""
    for node in walk.statements(tree):
        owner = node
        for one in getattr(node, "body", ()):
            if (
                isinstance(one, ast.Expr)
                and isinstance(one.value, ast.Constant)
                and isinstance(one.value.value, str)
                and isinstance(owner, OWNERS)
            ):
                yield owner, one.lineno, inspect.cleandoc(one.value.value)
            owner = one


def described(node: ast.AST) -> str:
    """Return the signature, the class or the attribute that a docstring describes."""
    match node:
        case ast.Module():
            return "module"
        case ast.ClassDef():
            return f"class {node.name}"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            return f"def {node.name}({ast.unparse(node.args)}){returns}"
        case ast.Assign() | ast.AnnAssign():
            return ast.unparse(node).splitlines()[0]
        case _:
            raise ValueError(f"{type(node).__name__} has no docstring")


def comments(path: Path, source: str) -> Iterator[Text]:
    """Yield the comments of a file; adjoining lines are one comment."""
    lines = source.splitlines()
    found: list[tuple[int, int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        words = token.string.lstrip("# ")
        if token.type != tokenize.COMMENT or words.startswith(DIRECTIVES):
            continue
        row, column = token.start
        alone = not lines[row - 1][:column].strip()
        if alone and found and found[-1][1:3] == (row - 1, column):
            first, _, _, text = found.pop()
            found.append((first, row, column, f"{text}\n{words}"))
        else:
            found.append((row, row if alone else 0, column, words))
    for first, last, _, text in found:
        if len(text.split()) >= LEAST_WORDS:
            yield Text(path, first, lines[min(last or first - 1, len(lines) - 1)].strip(), text)


def texts() -> list[Text]:
    """Return all docstrings and comments of the tree, in the order of files and lines."""
    found = list[Text]()
    for path in sources():
        source = path.read_text()
        found += sorted(
            (*docstrings(path, ast.parse(source)), *comments(path, source)), key=lambda one: one.line
        )
    return found


def main() -> None:
    """Print the drawn texts."""
    parser = argparse.ArgumentParser(description="Draw docstrings and comments at random.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    every = texts()
    for number, one in enumerate(random.Random(options.seed).sample(every, options.count), 1):
        print(f"{number}. {one.path.relative_to(ROOT)}:{one.line}\n   {one.about}\n")
        print("\n".join(f"       {line}" for line in one.text.splitlines()), end="\n\n")
    print(f"{options.count} of {len(every)}")


if __name__ == "__main__":
    main()
