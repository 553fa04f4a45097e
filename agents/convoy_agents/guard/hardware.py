"""What tells one node's hardware from another's: its accelerators' UUIDs, whatever the node is called."""

from __future__ import annotations

import re
from pathlib import Path

import structlog

from convoy_agents.guard.sweep.provenance import driver
from convoy_agents.wire import hub_pb2

log = structlog.get_logger(__name__)

NVIDIA = Path("/proc/driver/nvidia")
"""Of NVIDIA's kernel module: `gpus/<pci>/information` for each GPU, and `version`. There without any library,
and readable without a driver call that could hang.
"""
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]{36})\s*$", re.MULTILINE)


def detect(root: Path = NVIDIA) -> hub_pb2.Hardware:
    """The node's accelerators and their driver; none where there is no such module.

    A GPU that has not been woken since boot has no UUID yet (`GPU-????????`): then it is not `known`, and
    what is known of the node stands.
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
            log.warning("hardware not read", path=str(path), why=str(error))
        return ""
