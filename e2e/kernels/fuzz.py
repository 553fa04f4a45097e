"""Compares kernels with their numpy twins for random shapes.

    python -m e2e.kernels.fuzz [--cases 100000] [--seed 1] [--libraries DIR]

A suite is a module `fuzz_<name>.py` of this folder: `KERNELS`, optionally `EMULATED` (an `Emulation` by
instruction set), and `fuzz(kernel's name, functions by instruction set)`, which
returns an object with `run(random) -> str` and `close()`. Every case has a seed of its own, which is printed
if the case fails.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convoy_workloads.kernels import build, instruction_sets, library
from convoy_workloads.kernels.dispatch import Kernel
from convoy_workloads.kernels.errors import KernelError
from e2e.kernels.emulation import Emulation

CASES = 100_000


def suites() -> Iterator[tuple[Any, Kernel[Any]]]:
    """Yield each module of random cases with each of its kernels."""
    for path in sorted(Path(__file__).parent.glob("fuzz_*.py")):
        module = importlib.import_module(f"e2e.kernels.{path.stem}")
        for kernel in module.KERNELS:
            yield module, kernel


def functions(kernel: Kernel[Any], emulated: Mapping[str, Emulation], folder: Path | None) -> dict[str, Any]:
    """Return the kernel's functions by instruction set: those that this machine has, and emulated ones."""
    found = {}
    for name in kernel.instruction_sets:
        unit = f"{kernel.name}_{name}"
        missing = instruction_sets.missing_flags(name, instruction_sets.cpu_flags())
        if not missing:
            path = folder / f"{unit}.so" if folder else library.find(unit)
        elif name in emulated and emulated[name].suffices(missing):
            path = emulate(unit, emulated[name].compiler_flags, folder)
        else:
            continue
        found[name] = kernel.bind(ctypes.CDLL(str(path)))
    return found


def emulate(unit: str, extra: tuple[str, ...], folder: Path | None) -> Path:
    """Return the library of a unit that was compiled with `extra` flags, for a CPU that lacks the set."""
    own = build.units()[unit]
    target = (folder or library.user_cache() / build.digest(own)) / "emulated"
    path = target / f"{unit}.so"
    return path if path.exists() else build.compile_unit(own, target, extra=extra)


def run(cases: int, seed: int, folder: Path | None = None) -> list[str]:
    """Run random cases, divided among all kernels. Return a line for each kernel. Raises AssertionError for
    the first case in which a kernel differs from its twin.
    """
    every = list(suites())
    lines = []
    for module, kernel in every:
        found = functions(kernel, getattr(module, "EMULATED", {}), folder)
        suite = module.fuzz(kernel.name, found)
        share = -(-cases // len(every))
        begin = time.monotonic()
        try:
            for number in range(share):
                wrong = suite.run(np.random.default_rng((seed, number)))
                if wrong:
                    raise AssertionError(f"seed {seed}, case {number}: {wrong}")
        finally:
            suite.close()
        seconds = time.monotonic() - begin
        lines.append(f"{kernel.name}: {share:,} cases with each of {', '.join(found)}: {seconds:.0f} s")
    return lines


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m e2e.kernels.fuzz", description="Fuzz the kernels.")
    parser.add_argument("--cases", type=int, default=CASES, help="cases of all kernels together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--libraries", type=Path, help="folder of built libraries (default: those of the user)"
    )
    chosen = parser.parse_args()
    faulthandler.enable()
    try:
        print("\n".join(run(chosen.cases, chosen.seed, chosen.libraries)))
    except (AssertionError, KernelError) as error:
        print(f"convoy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
