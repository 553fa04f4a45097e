"""Errors of the vector index."""

from __future__ import annotations

from pathlib import Path


class AperonError(Exception):
    """An error of the vector index. The message says what is wrong, where, and what to do."""


class InvalidInput(AperonError, ValueError):
    """A vector, an id, a field or a parameter is not valid. `field` is its path in the request."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class UnknownField(InvalidInput):
    """A filter or a record names a metadata field that the index does not have."""


class NoSpace(InvalidInput):
    """The disk has no space for an operation. Nothing was written, and the index goes on."""

    def __init__(self, path: Path) -> None:
        super().__init__("disk", f"no space for {path}: delete files, or enlarge the volume. Searches go on")
        self.path = path


class CorruptFile(AperonError):
    """A file of the index is missing, truncated or changed."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class NoIndex(AperonError):
    """The folder has no index."""


class IndexExists(AperonError):
    """The folder already has an index."""


class LogGap(AperonError):
    """An operation from a peer does not follow the last applied one. Fetch the operations in between."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"operation {found} does not follow operation {expected - 1}: send {expected} first")
        self.expected = expected
        self.found = found


class TargetNotReached(AperonError):
    """No allowed setting reaches the recall that was asked for. The former settings stay in use."""

    def __init__(self, target: float, best: float, nprobe: int, candidates: int) -> None:
        super().__init__(
            f"target_recall {target:g} is out of reach: nprobe {nprobe} and candidates {candidates}, the "
            f"most allowed, give {best:.4f}, {target - best:.4f} too little. Allow more, or lower the "
            "target. The settings are unchanged"
        )
        self.target = target
        self.best = best
        self.margin = target - best
        self.nprobe = nprobe
        self.candidates = candidates


class IndexClosed(AperonError):
    """The index is closed, or a failed write has stopped it. Open it again."""


class OperationsGone(AperonError):
    """The log no longer has the operations that a peer asks for. The peer needs a copy of the index."""

    def __init__(self, after: int, oldest: int) -> None:
        super().__init__(
            f"operation {after + 1} is no longer in the log, which starts with {oldest}: copy the index"
        )
        self.after = after
        self.oldest = oldest


class IndexInUse(AperonError):
    """Another process, or this one, has the index open."""
