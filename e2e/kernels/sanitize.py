"""Runs the kernels under sanitizers: address and undefined for all kernels, thread for the pool.

python -m e2e.kernels.sanitize [--cases 4000]
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from convoy_workloads.kernels import build, instruction_sets
from convoy_workloads.kernels.errors import KernelError
from e2e.cluster.errors import CommandError
from e2e.cluster.files import CHECKOUT
from e2e.cluster.run import run

FOLDER = CHECKOUT / "build" / "kernels"
DRIVER = Path(__file__).with_name("pool_stress.cpp")
CASES = 4000
OPTIONS = {
    # Python keeps memory until its end.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


def fuzz(sanitize: str, cases: int) -> str:
    """Build all kernels that this machine can run with a sanitizer, and fuzz them. Return what was done."""
    folder = FOLDER / sanitize
    usable = [
        name
        for name, unit in build.units().items()
        if unit.instruction_set is None
        or not instruction_sets.missing_flags(unit.instruction_set.name, instruction_sets.cpu_flags())
    ]
    build.build(folder, sanitize=sanitize, only=usable)
    environment = {**OPTIONS, "OPENBLAS_NUM_THREADS": "1"}
    if sanitize == "address":
        environment["LD_PRELOAD"] = run([_compiler(), "-print-file-name=libasan.so"]).strip()
    command = [sys.executable, "-m", "e2e.kernels.fuzz", "--cases", str(cases), "--libraries", str(folder)]
    return run(command, deadline=900, env=environment, cwd=CHECKOUT)


def stress(sanitize: str) -> str:
    """Build the thread pool and its driver into a program with a sanitizer. Run the program."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    program = FOLDER / f"pool-{sanitize}"
    flags = ["-std=c++17", "-O1", "-g", "-pthread", f"-fsanitize={sanitize}"]
    run(
        [_compiler(), *flags, f"-I{build.SOURCES}", DRIVER, build.SOURCES / "thread_pool.cpp", "-o", program],
        deadline=300,
    )
    return run([program], deadline=600, env=OPTIONS)


def _compiler() -> str:
    found = build.compiler()
    if found is None:
        raise KernelError("no C++ compiler: install g++ (Debian: apt-get install g++), or set CXX")
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.kernels.sanitize", description="Sanitize the kernels."
    )
    parser.add_argument("--cases", type=int, default=CASES, help="random cases for each sanitizer")
    chosen = parser.parse_args()
    try:
        for sanitize in build.SANITIZERS:
            print(f"thread pool under {sanitize}: {stress(sanitize).strip()}", flush=True)
        for sanitize in ("address", "undefined"):
            print(f"{sanitize}: {fuzz(sanitize, chosen.cases).strip()}", flush=True)
    except (CommandError, KernelError) as error:
        print(f"convoy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    sys.exit(main())
