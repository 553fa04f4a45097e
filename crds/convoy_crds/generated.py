"""Files that are made from code: written in place, or compared so that a stale one fails the build."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], module: str) -> None:
    """Writes `files`; with --check on the command line compares them instead.

    Raises SystemExit that names the stale ones and the `module` to run.
    """
    if "--check" in sys.argv[1:]:
        stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        if stale:
            raise SystemExit(f"stale, run python -m {module}: {', '.join(stale)}")
        return
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
