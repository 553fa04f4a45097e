"""Findings: one fault in a trace, with its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

MAX_FINDINGS = 100
"""Findings of one rule that a check reports. A broken trace may have one in each node."""
MAX_TEXT = 400
"""Characters of a finding's text."""
MAX_NAME = 80
"""Characters of a foreign name in a finding's text."""
MAX_PLACES = 5
"""Further nodes that a finding names if the same fault occurs at several."""


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
    TOO_MANY_VALUES = "TooManyValues"
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
    EMPTY_COMMUNICATION = "EmptyCommunication"
    OUT_OF_RANGE = "OutOfRange"
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


def short(text: str, most: int = MAX_NAME) -> str:
    """Return a text, cut if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_of(values: Sequence[object], most: int = MAX_PLACES) -> str:
    """Return the first values with commas between them, and the number of the others."""
    shown = ", ".join(map(str, values[:most]))
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"


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
    """A bounded list of findings: at most MAX_FINDINGS of each rule, and each fault once.

    The same fault at several nodes is one finding, which names the first nodes and the number of the others.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Rule, str, int | None], list[Finding]] = {}
        """The first findings of each fault."""
        self._repeats: dict[tuple[Rule, str, int | None], int] = {}
        self._counts: dict[Rule, int] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding, unless its rule has MAX_FINDINGS other ones already."""
        finding = replace(finding, text=short(finding.text, MAX_TEXT))
        key = (finding.rule, finding.text, finding.rank)
        if key in self._found:
            self._repeats[key] += 1
            if len(self._found[key]) <= MAX_PLACES:
                self._found[key].append(finding)
            return
        count = self._counts.get(finding.rule, 0)
        self._counts[finding.rule] = count + 1
        if count < MAX_FINDINGS:
            self._found[key] = [finding]
            self._repeats[key] = 1

    def result(self) -> list[Finding]:
        """Return the findings, and for each rule with more of them a last one that has their number."""
        found = [_joined(ones, self._repeats[key]) for key, ones in self._found.items()]
        more = (
            Finding(rule, f"{count - MAX_FINDINGS} more findings of this rule are not shown")
            for rule, count in self._counts.items()
            if count > MAX_FINDINGS
        )
        return [*found, *more]


def _joined(findings: Sequence[Finding], count: int) -> Finding:
    """Return one finding for the same fault at `count` places, the first of which are `findings`."""
    first = findings[0]
    if count == 1:
        return first
    nodes = [str(one.node) for one in findings[1:] if one.node is not None]
    at = f", also at node {', '.join(nodes)}{' ...' if count > len(nodes) + 1 else ''}" if nodes else ""
    return replace(first, text=f"{first.text} ({count} times{at})")
