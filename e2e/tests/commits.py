"""Every commit record that a job ever wrote, also those that were collected since."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 0.1
"""Far less than a record lives: two generations are kept, and they are seconds apart."""


@dataclass(frozen=True)
class Commit:
    """A COMMIT record."""

    at: float
    """Unix seconds at which it was written."""
    parent: tuple[int, int] | None
    """(incarnation, step) of the generation before it."""


class Records(dict[tuple[int, int], Commit]):
    """By (incarnation, step)."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[int, float] = {}
        """By incarnation, Unix seconds at which it said that it begins."""


@contextmanager
def commits(volume: Path) -> Iterator[Records]:
    """The records below a volume's folder, kept up to date while the block runs."""
    found = Records()
    over = threading.Event()

    def begun() -> None:
        for file in volume.glob("*/branch-*.json"):
            incarnation = int(file.stem.partition("-")[2])
            try:
                at = file.stat().st_mtime
            except FileNotFoundError:
                continue
            # It is written again once it knows where it goes on from.
            found.begun[incarnation] = min(at, found.begun.get(incarnation, at))

    def look() -> None:
        while True:
            begun()
            for file in volume.glob("*/gen-*-*/COMMIT.json"):
                try:
                    record, at = json.loads(file.read_text()), file.stat().st_mtime
                except FileNotFoundError:
                    continue
                parent = record["parent"]
                key = (record["incarnation"], record["step"])
                found.setdefault(key, Commit(at, tuple(parent) if parent else None))
            if over.wait(LOOK_SECONDS):
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(10)
