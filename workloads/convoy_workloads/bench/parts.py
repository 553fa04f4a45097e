"""The JSON file of a bench that consists of parts, each of which may run alone.

A part that has run replaces its own rows in the file. The rows of other parts stay, with the commit, the
date and the machine of their own run.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convoy_workloads.bench.figures import FOLDER, Figures, commit, line, replace_file, this_machine


@dataclass(frozen=True)
class PartedBench:
    """A bench with parts. The file has the rows in the order of `parts`."""

    name: str
    command: str
    """Command that runs all parts."""
    parts: tuple[str, ...]

    def publish(self, part: str, found: Figures, complete: bool) -> None:
        """Print the figures of a part. If `complete` is True, also record them in the bench's JSON file."""
        for row in found.rows():
            print(line(row))
        if complete:
            print(self.record(part, found, datetime.datetime.now(datetime.UTC).date().isoformat()))

    def record(self, part: str, found: Figures, date: str) -> Path:
        """Replace the part's rows in docs/bench/<name>.json. Return the file's path."""
        if part not in self.parts:
            raise ValueError(f"the bench {self.name} has no part {part}; it has {', '.join(self.parts)}")
        path = FOLDER / f"{self.name}.json"
        before: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        run = {"commit": commit(), "date": date, "machine": this_machine()}
        runs = {**before.get("parts", {}), part: run}
        rows = {name: [row for row in before.get("rows", ()) if row["part"] == name] for name in self.parts}
        rows[part] = [{**row, "part": part} for row in found.rows()]
        document = {
            "name": self.name,
            "command": self.command,
            **run,
            "parts": {name: runs[name] for name in self.parts if name in runs},
            "rows": [row for name in self.parts for row in rows[name]],
        }
        replace_file(path, document)
        return path
