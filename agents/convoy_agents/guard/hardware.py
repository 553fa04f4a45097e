"""Detects a node's hardware identity: the UUIDs of its accelerators, independent of the node's name."""

from __future__ import annotations

import re
from pathlib import Path

import structlog

from convoy_agents.guard.sweep.provenance import driver
from convoy_agents.wire import hub_pb2

log = structlog.get_logger(__name__)

NVIDIA = Path("/proc/driver/nvidia")
"""Folder of NVIDIA's kernel module: `gpus/<pci>/information` for each GPU, and `version`. It needs no
library, and reading it makes no driver call that could hang.
"""
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]{36})\s*$", re.MULTILINE)


def detect(root: Path = NVIDIA) -> hub_pb2.Hardware:
    """Return the node's accelerators and their driver; none without NVIDIA's kernel module.

    A GPU that was not used since boot has no UUID yet (`GPU-????????`). The result is then not `known`, and
    the hub keeps its previous knowledge of the node.
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
