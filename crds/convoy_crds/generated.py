"""Writes generated files, or checks that they are up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], module: str) -> None:
    """Write `files`. With --check on the command line, compare them with the files on disk instead.

    Raises SystemExit if files are not up to date. The message names these files and the `module` that
    generates them.
    """
    if "--check" in sys.argv[1:]:
        stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        if stale:
            raise SystemExit(f"stale, run python -m {module}: {', '.join(stale)}")
        return
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def with_block(text: str, name: str, lines: Iterable[str]) -> str:
    """Return the YAML text `text` with `lines` between the comments `# NAME: ...` and `# NAME: end`.

    Each line gets the indentation of the first comment. Raises ValueError if a comment is missing or occurs
    more than once.
    """
    found = text.splitlines()
    marks = [number for number, line in enumerate(found) if line.lstrip().startswith(f"# {name}: ")]
    if len(marks) != 2 or found[marks[1]].strip() != f"# {name}: end":
        raise ValueError(f"the text needs the comments '# {name}: ...' and '# {name}: end', once each")
    first, last = marks
    indent = found[first][: -len(found[first].lstrip())]
    return "\n".join([*found[: first + 1], *(indent + line for line in lines), *found[last:]]) + "\n"
