"""Under what a sweep was run: figures are compared only among nodes where this is alike."""

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
    """Texts; empty for what is not there."""

    agent: str
    """Version of the agent, and so of its probes."""
    kernel: str
    driver: str
    """Of the accelerators."""
    boot_id: str
    """Of the node's kernel."""


def provenance(version: str) -> Provenance:
    """Of this node now."""
    return Provenance(version, os.uname().release, driver(), _text(_BOOT))


def driver(path: Path = _NVIDIA) -> str:
    """Version of NVIDIA's kernel module."""
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", _text(path))
    return found[1] if found else ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""
