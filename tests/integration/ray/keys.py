"""Files with keys of jobs."""

from __future__ import annotations

from pathlib import Path


def key(folder: Path, name: str, digit: str) -> str:
    path = folder / name
    path.write_text(digit * 64 + "\n")
    return str(path)
