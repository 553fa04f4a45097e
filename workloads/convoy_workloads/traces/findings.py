"""Findings: one fault in a trace, with its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

MAX_FINDINGS = 100
"""Findings of one rule that a check reports. A broken trace may have one in each node."""


class Rule(str, Enum):  # noqa: UP042 - pods may have Python 3.10
    """The rule that a trace breaks."""

    __str__ = str.__str__

    # The file.
    UNREADABLE = "Unreadable"
    TOO_LARGE = "TooLarge"
    TRUNCATED = "Truncated"
    MALFORMED = "Malformed"
    EMPTY_MESSAGE = "EmptyMessage"
    TOO_MANY_NODES = "TooManyNodes"
    LONG_STRING = "LongString"
    LONG_LIST = "LongList"
    TOO_DEEP = "TooDeep"
    # One trace.
    DUPLICATE_ID = "DuplicateId"
    DANGLING_DEPENDENCY = "DanglingDependency"
    CYCLE = "Cycle"
    UNKNOWN_TYPE = "UnknownType"
    WRONG_FIELD = "WrongField"
    MISSING_ATTRIBUTE = "MissingAttribute"
    DUPLICATE_ATTRIBUTE = "DuplicateAttribute"
    NEGATIVE_VALUE = "NegativeValue"
    NEGATIVE_TIME = "NegativeTime"
    UNKNOWN_COLLECTIVE = "UnknownCollective"
    CPU_COMMUNICATION = "CpuCommunication"
    # All ranks together.
    DUPLICATE_RANK = "DuplicateRank"
    MISSING_RANK = "MissingRank"
    COLLECTIVE_MISMATCH = "CollectiveMismatch"
    UNMATCHED_SEND = "UnmatchedSend"
    UNMATCHED_RECV = "UnmatchedRecv"
    # The conversion of torch's traces.
    INVALID_FIELD = "InvalidField"
    OVERLAP = "Overlap"
    UNKNOWN_GROUP = "UnknownGroup"
    UNKNOWN_LAUNCH = "UnknownLaunch"
    UNKNOWN_SIZE = "UnknownSize"
    NO_TIMES = "NoTimes"


def printable(text: str) -> str:
    """Return foreign text with `?` for characters that a terminal could take for commands."""
    return "".join(one if one.isprintable() else "?" for one in text)


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault in a trace. Parts of its place that do not apply are None."""

    rule: Rule
    text: str
    rank: int | None = None
    node: int | None = None
    """Id of the node."""
    offset: int | None = None
    """Byte in the uncompressed file where the faulty message begins."""

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values, without the parts that do not apply."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def line(self) -> str:
        """Return the finding as one line for people."""
        places = (("rank", self.rank), ("node", self.node), ("byte", self.offset))
        place = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        return f"{self.rule}{f' ({place})' if place else ''}: {printable(self.text)}"


class InvalidTrace(ValueError):
    """Raised for a trace that cannot be used. The message names the first faults."""

    def __init__(self, findings: Iterable[Finding], path: str = "") -> None:
        self.findings = tuple(findings)
        shown = "; ".join(one.line() for one in self.findings[:3])
        more = len(self.findings) - 3
        rest = f"; and {more} more" if more > 0 else ""
        super().__init__(f"{path}{': ' if path else ''}{shown}{rest}")


class Findings:
    """A bounded list of findings: at most MAX_FINDINGS of each rule."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: dict[Rule, int] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding, unless its rule has MAX_FINDINGS already."""
        count = self._counts.get(finding.rule, 0)
        self._counts[finding.rule] = count + 1
        if count < MAX_FINDINGS:
            self._found.append(finding)

    def result(self) -> list[Finding]:
        """Return the findings, and for each rule with more of them a last one that has their number."""
        more = (
            Finding(rule, f"{count - MAX_FINDINGS} more findings of this rule are not shown")
            for rule, count in self._counts.items()
            if count > MAX_FINDINGS
        )
        return [*self._found, *more]
