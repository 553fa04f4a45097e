"""Reads the properties of the node's accelerators with nvidia-smi. If nvidia-smi cannot be run, `rows`
returns an empty list.
"""

from __future__ import annotations

import csv
import io
import subprocess

SECONDS = 20.0
"""Timeout of nvidia-smi in seconds. nvidia-smi is a child of the probe's process, so killing the probe's
process group kills it too.
"""
_COMMON = (
    "name",
    "vbios_version",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "power.limit",
    "ecc.mode.current",
)
_OWN = (
    "uuid",
    "ecc.errors.uncorrected.volatile.total",
    "pcie.link.width.current",
    "temperature.gpu",
    "clocks_throttle_reasons.active",
)
FIELDS = ("index", *_COMMON, *_OWN)

Row = dict[str, str]


def rows(program: str = "nvidia-smi") -> list[Row]:
    """Return one row per accelerator: its values by field. Raises subprocess.TimeoutExpired if the driver
    does not respond.
    """
    command = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (FileNotFoundError, PermissionError):
        return []
    return read(completed.stdout)


def read(text: str) -> list[Row]:
    """Parse the output of nvidia-smi. A line with a wrong number of fields is skipped."""
    found = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(FIELDS, row, strict=True)) for row in found if len(row) == len(FIELDS)]


def common(found: list[Row]) -> dict[str, str]:
    """Return the facts that all nodes of a class share, for each accelerator in the driver's order."""
    if not found:
        return {}
    return {"gpu.count": str(len(found))} | {
        f"gpu{row['index']}.{name}": row[name] for row in found for name in _COMMON
    }


def own(found: list[Row]) -> dict[str, str]:
    """Return the facts that are specific to each accelerator."""
    return {f"gpu{row['index']}.{name}": row[name] for row in found for name in _OWN}
