"""Tests of the structure of the source: no import cycles, no long files, and few functions with many
parameters.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from tests.reading import walk

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "convoy_crds": "crds",
    "convoy_commands": "workloads",
    "convoy_controllers": "controllers",
    "convoy_operator": "operator",
    "convoy_agents": "agents",
    "convoy_workloads": "workloads",
    "convoy": "workloads",
    "e2e": "",
}
"""Folder of each package, by name of the package."""
MAX_LINES, MAX_TEST_LINES = 400, 499
MAX_PARAMETERS, MAX_EXCEPTIONS = 6, 5
SIGNATURE = re.compile(r"def\s+\w+(\[.*?\])?\((.*?)\)\s*(->|:)", re.DOTALL)


def sources() -> list[Path]:
    """Return the files of the product. Tests and generated code are left out."""
    found = [path for name, folder in PACKAGES.items() for path in (ROOT / folder / name).rglob("*.py")]
    return [path for path in found if "_pb2" not in path.name and not path.is_relative_to(ROOT / "e2e/tests")]


def files_of_tests() -> list[Path]:
    """Return the files that contain tests."""
    return [path for folder in ("tests", "e2e/tests") for path in (ROOT / folder).rglob("test_*.py")]


def too_long(paths: list[Path], most: int) -> dict[str, int]:
    """Return the number of lines of each file that has more than `most` lines."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in paths}
    return {name: length for name, length in sorted(lengths.items()) if length > most}


@functools.cache
def graph() -> grimp.ImportGraph:
    """Return the import graph. It includes imports inside functions, but not imports that are only for
    types.
    """
    return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)


def circles(found: grimp.ImportGraph) -> set[tuple[str, ...]]:
    """Return the import cycles. For each import in a cycle, the result has the shortest cycle through this
    import.
    """
    chains = set()
    for importer in found.modules:
        for imported in found.find_modules_directly_imported_by(importer):
            if chain := found.find_shortest_chain(importer=imported, imported=importer):
                first = chain.index(min(chain))
                chains.add((*chain[first:], *chain[:first]))
    return chains


def has_long_signature(text: str) -> bool:
    """Return True if a function of the text may have too many parameters, by the number of commas."""
    return any(one[2].count(",") >= MAX_PARAMETERS for one in SIGNATURE.finditer(text))


def many_parameters(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function with too many parameters. The parameter `self` does not
    count. Commands of Typer and kernels of Triton are left out.
    """
    methods = set[ast.stmt]()
    # The walk visits a class before its body, so `methods` is complete when it visits a method.
    for one in walk.statements(tree):
        if isinstance(one, ast.ClassDef):
            methods.update(one.body)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            count = sum(map(len, (one.args.posonlyargs, one.args.args, one.args.kwonlyargs)))
            if count <= MAX_PARAMETERS or is_command(one) or is_kernel(one):
                continue
            static = any(ast.unparse(mark) == "staticmethod" for mark in one.decorator_list)
            if count - (one in methods and not static) > MAX_PARAMETERS:
                yield one.lineno, one.name


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if the function is a kernel of Triton. Its parameters are the memory that it uses."""
    return any(ast.unparse(mark) == "triton.jit" for mark in function.decorator_list)


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if the function is a command of Typer. The parameters of a command are the options of the
    command line.
    """
    marks = [ast.unparse(mark) for mark in function.decorator_list]
    notes = [ast.unparse(one.annotation) for one in function.args.args if one.annotation]
    return any(".command(" in mark or ".callback(" in mark for mark in marks) or any(
        "typer." in note for note in notes
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(graph()) == set()


def test_an_import_circle_is_found() -> None:
    made = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")):
        made.add_import(importer=importer, imported=imported)
    assert circles(made) == {("a", "b", "c")}


def test_benches_and_helpers_import_no_test() -> None:
    found = grimp.build_graph("e2e", cache_dir=None)
    chains = found.find_modules_that_directly_import("e2e.tests")
    assert {one for one in chains if not one.startswith("e2e.tests")} == set()


def test_every_folder_is_a_package() -> None:
    """import-linter ignores a folder without __init__.py, so the import contracts would not hold there."""
    assert {path.parent for path in sources() if not (path.parent / "__init__.py").exists()} == set()


def test_no_file_is_too_long() -> None:
    assert too_long(sources(), MAX_LINES) == {}


def test_no_file_of_tests_is_too_long() -> None:
    assert too_long(files_of_tests(), MAX_TEST_LINES) == {}


def test_few_functions_take_many_parameters() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted(sources())
        if has_long_signature(text := path.read_text())
        for line, name in many_parameters(ast.parse(text))
    ]
    assert len(found) <= MAX_EXCEPTIONS, found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(a, b, c, d, e, f): ...", False),
        ("def f(a, b, c, d, e, f, g): ...", True),
        ("def f(a, b, c, d, *, e, f, g): ...", True),
        ("class C:\n    def f(self, a, b, c, d, e, f): ...", False),
        ("class C:\n    def f(self, a, b, c, d, e, f, g): ...", True),
        ("class C:\n    @staticmethod\n    def f(a, b, c, d, e, f, g): ...", True),
        ("@app.command()\ndef f(a, b, c, d, e, f, g): ...", False),
        ("@triton.jit\ndef f(a, b, c, d, e, f, g): ...", False),
        ("def f(a: Annotated[int, typer.Option()], b, c, d, e, f, g): ...", False),
    ],
)
def test_parameters_are_counted(source: str, found: bool) -> None:
    assert bool(list(many_parameters(ast.parse(source)))) is found
    assert has_long_signature(source) >= found
