"""Detects the identity of a node's hardware: the UUIDs of its accelerators. The identity does not depend on
the node's name.
"""

from __future__ import annotations

import re
from pathlib import Path

import structlog

from convoy_agents.guard.sweep.provenance import driver
from convoy_agents.wire import hub_pb2

log = structlog.get_logger(__name__)

NVIDIA = Path("/proc/driver/nvidia")
"""Folder in which NVIDIA's kernel module lists each GPU (`gpus/<pci>/information`) and its own `version`.
Reading it needs no library and makes no driver call that could hang.
"""
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]{36})\s*$", re.MULTILINE)


def detect(root: Path = NVIDIA) -> hub_pb2.Hardware:
    """Return the UUIDs of the node's accelerators and the driver's version. Both are empty without NVIDIA's
    kernel module.

    A GPU that was not used since boot has no UUID yet (`GPU-????????`). Then `known` is False, and the hub
    keeps the identity that it already has for the node.
    """
    hardware = hub_pb2.Hardware(known=True, driver=driver(root / "version"))
    for path in sorted(root.glob("gpus/*/information")):
        uuid = _UUID.search(_read(path))
        if uuid is None:
            hardware.known = False
        else:
            hardware.accelerators.append(uuid[1])
    return hardware


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            log.warning("reading hardware information failed", path=str(path), why=str(error))
        return ""
