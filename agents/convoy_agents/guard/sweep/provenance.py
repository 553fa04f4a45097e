"""The versions under which a sweep ran. Results are comparable only among nodes with the same versions."""

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
    """Versions and ids; empty if unknown."""

    agent: str
    """Version of the agent and its probes."""
    kernel: str
    driver: str
    """Version of the accelerators' driver."""
    boot_id: str
    """Boot id of the node's kernel."""


def provenance(version: str) -> Provenance:
    """Return the current provenance of this node."""
    return Provenance(version, os.uname().release, driver(), _text(_BOOT))


def driver(path: Path = _NVIDIA) -> str:
    """Return the version of NVIDIA's kernel module; empty if it is not loaded."""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", _text(path))
    return found[1] if found else ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""
