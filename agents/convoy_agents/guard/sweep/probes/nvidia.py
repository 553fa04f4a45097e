"""What nvidia-smi says of the node's accelerators; nothing where there is none."""

from __future__ import annotations

import csv
import io
import subprocess

SECONDS = 20.0
"""That it may take; it is this child's own child, and dies with its group."""
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
    """One for each accelerator, by field. TimeoutExpired when the driver does not answer."""
    command = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (FileNotFoundError, PermissionError):
        return []
    return read(completed.stdout)


def read(text: str) -> list[Row]:
    """Of its output; lines of another form are left out."""
    found = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(FIELDS, row, strict=True)) for row in found if len(row) == len(FIELDS)]


def common(found: list[Row]) -> dict[str, str]:
    """What nodes of one class have in common: each accelerator's, in the driver's order."""
    if not found:
        return {}
    return {"gpu.count": str(len(found))} | {
        f"gpu{row['index']}.{name}": row[name] for row in found for name in _COMMON
    }


def own(found: list[Row]) -> dict[str, str]:
    """What is each accelerator's own."""
    return {f"gpu{row['index']}.{name}": row[name] for row in found for name in _OWN}
