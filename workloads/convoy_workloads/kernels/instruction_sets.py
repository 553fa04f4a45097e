"""Instruction sets of x86-64 for which kernels exist: compiler flags, and the CPU flags that they need."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
_VNNI = (*_AVX512, "avx512_vnni")
_BF16 = (*_AVX512, "avx512_bf16", "avx512vbmi")
_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """An instruction set. `sources/<kernel>_<name>.cpp` is compiled with its flags."""

    name: str
    cpu_flags: tuple[str, ...]
    """Flags of /proc/cpuinfo that a CPU needs."""
    off_reason: str = ""
    """The reason for which `auto` does not choose this set. Empty: `auto` may choose it."""
    needs_tile_permission: bool = False
    """True if a process must ask the kernel for the tile registers before their first use."""

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        """Return the compiler's flags, one for each CPU flag."""
        return tuple("-m" + flag.replace("_", "-").replace("avx512-", "avx512") for flag in self.cpu_flags)


INSTRUCTION_SETS: Mapping[str, InstructionSet] = MappingProxyType(
    {
        one.name: one
        for one in (
            InstructionSet("avx2", _AVX2),
            InstructionSet("avx512", _AVX512),
            InstructionSet("avx512vnni", _VNNI),
            InstructionSet("avx512bf16", _BF16),
            InstructionSet(
                "amx",
                (*_BF16, "amx_tile", "amx_bf16"),
                off_reason="docs/bench has no recorded run with AMX",
                needs_tile_permission=True,
            ),
        )
    }
)


def parse_cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Return the flags that every processor in the text of /proc/cpuinfo has."""
    lines = [
        frozenset(line.partition(":")[2].split())
        for line in cpuinfo.splitlines()
        if line.partition(":")[0].strip() == "flags"
    ]
    return frozenset.intersection(*lines) if lines else frozenset()


def missing_flags(name: str, flags: Iterable[str]) -> tuple[str, ...]:
    """Return the CPU flags that the instruction set needs and that are not in `flags`."""
    known = frozenset(flags)
    return tuple(flag for flag in INSTRUCTION_SETS[name].cpu_flags if flag not in known)


@cache
def cpu_flags() -> frozenset[str]:
    """Return this machine's CPU flags. They are empty for CPUs other than x86-64."""
    if platform.machine() not in {"x86_64", "AMD64"}:
        return frozenset()
    try:
        return parse_cpu_flags(Path("/proc/cpuinfo").read_text())
    except OSError:
        return frozenset()


def detect() -> tuple[str, ...]:
    """Return the names of the instruction sets that this machine's CPU has."""
    return tuple(name for name in INSTRUCTION_SETS if not missing_flags(name, cpu_flags()))


@cache
def request_tiles() -> bool:
    """Ask the kernel for the tile registers of AMX, once per process. Return True if it grants them."""
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0)
