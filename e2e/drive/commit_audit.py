"""Collects all commit records that a job ever writes to its store, including records that are deleted
later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation

SCAN_SECONDS = 0.1
"""Seconds between scans. No record is missed: the store keeps two generations, and commits are seconds
apart.
"""
UNDER_WAY_SECONDS = 1.0
"""Maximum seconds from a later incarnation's branch record to the end of a commit that was already in
progress.

The limit is shorter than the time between two saves, so the audit notices a second late commit.
"""


@dataclass
class CommitLog:
    """The commit records and branch records of one job in a store. Times are Unix seconds.

    An incarnation's branch record names the generation that the incarnation continues from.
    """

    committed_at: dict[Generation, float] = field(default_factory=dict)
    """Time of each generation's commit."""
    branched_at: dict[int, float] = field(default_factory=dict)
    """Time at which each incarnation's branch record was first written. Afterwards no older incarnation may
    commit.
    """
    parents: dict[int, Generation | None] = field(default_factory=dict)
    """Generation that each incarnation continues from, according to its branch record."""

    def audit(self, restored: dict[int, Generation]) -> None:
        """Assert that no incarnation committed late, and that each one continued from the right generation.

        A commit is late if it happens more than UNDER_WAY_SECONDS after a later incarnation's branch
        record.

        An incarnation must continue from the newest generation that the store had at the time of the branch
        record. Alternatively, it may continue from a newer generation by the same earlier incarnation,
        which only memory had.

        `restored` is the generation that each incarnation restored, read from the ranks' logs.
        """
        for generation, at in self.committed_at.items():
            later = [
                branched_at
                for other, branched_at in self.branched_at.items()
                if other > generation.incarnation
            ]
            assert all(at < branched_at + UNDER_WAY_SECONDS for branched_at in later), (
                f"{generation} was committed after a later incarnation had begun"
            )
        for incarnation, generation in restored.items():
            branched_at = self.branched_at[incarnation]
            before = [
                one
                for one, at in self.committed_at.items()
                if one.incarnation < incarnation and at < branched_at
            ]
            assert before and generation >= max(before), (incarnation, generation, sorted(self.committed_at))
            assert generation.incarnation == max(before).incarnation, (
                incarnation,
                generation,
                self.branched_at,
            )
            assert self.parents[incarnation] == generation


@contextmanager
def commits(folder: Path) -> Iterator[CommitLog]:
    """Yield the records of the only job in a store's folder, and update them while the block runs.

    Raises the error of a failed scan when the block ends.
    """
    found = CommitLog()
    over, broken = threading.Event(), list[Exception]()

    def follow() -> None:
        try:
            while True:
                _scan(folder, found)
                if over.wait(SCAN_SECONDS):
                    return
        except Exception as error:
            broken.append(error)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(10)
        for error in broken:
            raise error
        _scan(folder, found)


def _scan(folder: Path, found: CommitLog) -> None:
    for text, at in _texts(folder, "branches/[0-9]*"):
        branch = records.parse_branch(text)
        # An incarnation writes its branch record again once it knows its parent, so keep the time of the
        # first write.
        found.branched_at[branch.incarnation] = min(at, found.branched_at.get(branch.incarnation, at))
        if branch.decided:
            found.parents[branch.incarnation] = branch.parent
    for text, at in _texts(folder, "records/gen-*"):
        found.committed_at.setdefault(records.parse_record(text).generation, at)


def _texts(folder: Path, below: str) -> Iterator[tuple[bytes, float]]:
    """Yield the content and the modification time (Unix seconds) of each file that matches `below`."""
    for file in sorted(folder.glob(f"*/*/{below}")):
        try:
            yield records.unseal(file.read_bytes()), file.stat().st_mtime
        except FileNotFoundError:
            continue
