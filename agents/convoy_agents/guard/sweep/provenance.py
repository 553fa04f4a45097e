"""The versions of the software with which a sweep ran, and the id of the node's boot. Results of two sweeps
are comparable only if the versions are equal.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NVIDIA = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Provenance:
    """The software versions and the boot id of one node. An unknown value is an empty text."""

    agent: str
    """Version of the agent, which contains the probes."""
    kernel: str
    driver: str
    """Version of the accelerators' driver."""
    boot_id: str
    """Id that the kernel generates at each boot."""


def provenance(version: str) -> Provenance:
    """Return the provenance of this node. `version` is the agent's version."""
    return Provenance(version, os.uname().release, driver(), kernel_boot_id())


def kernel_boot_id() -> str:
    """Return the id that the kernel generates at each boot; an empty text if it is unknown."""
    return _text(_BOOT)


def driver(path: Path = _NVIDIA) -> str:
    """Return the version of NVIDIA's kernel module; an empty text if the module is not loaded."""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", _text(path))
    return found[1] if found else ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""
