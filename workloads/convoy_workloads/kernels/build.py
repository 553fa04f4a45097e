"""Compiles the kernels: one shared library per translation unit.

    python -m convoy_workloads.kernels.build --output DIR [--sanitize address|undefined|thread]

A translation unit is `sources/<kernel>_<instruction set>.cpp`, or `sources/<name>.cpp` for code that needs no
instruction set. Units are found by their file names. Beside the libraries stands `digests.json` with one
digest per library, over the unit, the headers that it includes, and the compiler's flags.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from convoy_workloads.kernels.errors import KernelError
from convoy_workloads.kernels.instruction_sets import INSTRUCTION_SETS, InstructionSet

SOURCES = Path(__file__).with_name("sources")
DIGESTS = "digests.json"
COMPILERS = ("c++", "g++", "clang++")
DEADLINE = 300.0
"""Seconds after which a compiler is stopped."""
FLAGS = (
    "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden",
    "-static-libstdc++", "-static-libgcc", "-ffp-contract=off",
)  # fmt: skip
OPTIMISE = ("-O3",)
SANITIZERS = ("address", "undefined", "thread")
_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Unit:
    """A translation unit. Its library is `<name>.so`."""

    name: str
    source: Path
    kernel: str
    """The name without the instruction set."""
    instruction_set: InstructionSet | None
    """None for code that runs on every CPU."""


def units(sources: Path = SOURCES) -> dict[str, Unit]:
    """Return the translation units in a folder, by name."""
    found = {}
    for source in sorted(sources.glob("*.cpp")):
        kernel, _, last = source.stem.rpartition("_")
        known = INSTRUCTION_SETS.get(last) if kernel else None
        found[source.stem] = Unit(source.stem, source, kernel if known else source.stem, known)
    return found


def flags(unit: Unit, sanitize: str = "") -> tuple[str, ...]:
    """Return the compiler's flags for a unit."""
    own = unit.instruction_set.compiler_flags if unit.instruction_set else ()
    if not sanitize:
        return (*FLAGS, *OPTIMISE, *own)
    return (*FLAGS, "-O1", "-g", "-fno-omit-frame-pointer", f"-fsanitize={sanitize}",
            "-fno-sanitize-recover=all", *own)  # fmt: skip


def digest(unit: Unit, sanitize: str = "") -> str:
    """Return the hexadecimal digest of what a unit's library is made from."""
    total = hashlib.sha256(repr(flags(unit, sanitize)).encode())
    for path in _inputs(unit.source):
        data = path.read_bytes()
        total.update(f"{path.name} {len(data)}\n".encode() + data)
    return total.hexdigest()[:24]


def _inputs(source: Path) -> list[Path]:
    """Return the source and all headers that it includes, directly or through others."""
    found = {source: None}
    queue = [source]
    while queue:
        for name in _INCLUDE.findall(queue.pop().read_text()):
            header = source.parent / name
            if header not in found and header.exists():
                found[header] = None
                queue.append(header)
    return sorted(found)


@cache
def compiler() -> str | None:
    """Return the path of a C++ compiler; None if there is none. The variable CXX has priority."""
    named = os.environ.get("CXX", "")
    for name in (named,) if named else COMPILERS:
        if found := shutil.which(name):
            return found
    return None


def compile_unit(
    unit: Unit,
    output: Path,
    *,
    sanitize: str = "",
    extra: Sequence[str] = (),
    deadline: float = DEADLINE,
) -> Path:
    """Compile a unit to `output/<name>.so`, with `extra` flags. Replace that file at once. Raises KernelError
    if the compiler is missing, fails or is too slow.
    """
    program = compiler()
    if program is None:
        if named := os.environ.get("CXX"):
            raise KernelError(f"CXX={named}: there is no such program; CXX must be one path or one name")
        raise KernelError("no C++ compiler: install g++ (Debian: apt-get install g++), or set CXX")
    final = output / f"{unit.name}.so"
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{unit.name}-", dir=output) as folder:
            made = Path(folder) / final.name
            command = [program, *flags(unit, sanitize), *extra, str(unit.source), "-o", str(made)]
            _run(unit, command, deadline)
            with made.open("rb") as stream:
                os.fsync(stream.fileno())  # After a power failure, the name must not stand for an empty file.
            made.replace(final)
    except OSError as error:
        raise KernelError(f"{unit.source.name}: cannot write to {output}: {error.strerror}") from error
    return final


def _run(unit: Unit, command: Sequence[str], deadline: float) -> None:
    """Run a compiler for at most `deadline` seconds. Raises KernelError if it is missing or fails."""
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=deadline, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KernelError(f"{unit.source.name}: {command[0]} did not end in {deadline:g} s") from error
    except OSError as error:
        raise KernelError(f"{unit.source.name}: cannot run {command[0]}: {error.strerror}") from error
    if ended.returncode:
        raise KernelError(f"{unit.source.name}: {command[0]} failed:\n{ended.stderr[-2000:]}")


def build(
    output: Path, *, sanitize: str = "", only: Iterable[str] = (), sources: Path = SOURCES
) -> dict[str, Path]:
    """Compile all units (or those named in `only`), two at a time. Return their libraries by name."""
    known = units(sources)
    wanted = set(only) or set(known)
    if unknown := wanted - set(known):
        raise KernelError(f"no unit {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    chosen = [unit for name, unit in known.items() if name in wanted]
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        made = list(pool.map(lambda unit: compile_unit(unit, output, sanitize=sanitize), chosen))
    write_digests(output, {unit.name: digest(unit, sanitize) for unit in chosen})
    return {unit.name: path for unit, path in zip(chosen, made, strict=True)}


def write_digests(folder: Path, digests: Mapping[str, str]) -> None:
    """Add digests of libraries to the folder's file of digests. Replace the file at once."""
    text = json.dumps(read_digests(folder) | dict(digests), indent=1, sort_keys=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".digests-", delete=False) as stream:
        stream.write(text + "\n")
    path = Path(stream.name)
    path.chmod(0o644)
    path.replace(folder / DIGESTS)


def read_digests(folder: Path) -> dict[str, str]:
    """Return the digests of a folder's libraries by name. Empty if the file is missing or not readable."""
    try:
        found = json.loads((folder / DIGESTS).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m convoy_workloads.kernels.build", description="Compile the kernels."
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the libraries")
    parser.add_argument("--sanitize", choices=SANITIZERS, default="", help="sanitizer to compile in")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="UNIT", help="units to compile (default: all)"
    )
    chosen = parser.parse_args(arguments)
    try:
        made = build(chosen.output, sanitize=chosen.sanitize, only=chosen.only)
    except KernelError as error:
        print(f"convoy: {error}", file=sys.stderr)
        return 1
    print(f"{len(made)} libraries in {chosen.output}: {', '.join(made)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
