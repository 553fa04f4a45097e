"""The interface of all metadata services that announce the end of an instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

from convoy_crds.spotpool_status import NoticeKind

POLL_SECONDS = 5.0
"""Maximum seconds of one poll. A poll makes at most four requests, each with a timeout of its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A notice in a reply of the service."""

    kind: NoticeKind = NoticeKind.PREEMPTION
    deadline: float = 0.0
    """Unix seconds at which the instance may disappear; 0 if the service does not say."""
    provider_id: str = ""
    """Id of another instance, as in its Node's `spec.providerID`; empty for the agent's own node."""


class SourceError(Exception):
    """The service gave no valid reply, or only a part of it is valid. The message says why."""

    def __init__(self, why: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(why)
        self.findings = findings
        """The notices in the valid part. Others may hold too, so these withdraw no earlier notice."""


class Findings:
    """Collects the notices of a reply's parts. A part that is not valid hides no other part."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._why = ""

    @contextmanager
    def part(self) -> Iterator[list[Finding]]:
        """Read one part into the list that this yields. A SourceError ends only this part."""
        try:
            yield self._found
        except SourceError as error:
            self._why = self._why or str(error)

    def all(self) -> tuple[Finding, ...]:
        """Return the notices of all parts. Raises SourceError, with the notices, if a part was not valid."""
        found = tuple(self._found)
        if self._why:
            raise SourceError(self._why, found)
        return found


class NoticeSource(Protocol):
    """A metadata service."""

    async def poll(self) -> tuple[Finding, ...]:
        """Return the notices that hold at present. Raises SourceError, with those that could be read."""
        ...


def unix_seconds(text: object, name: str) -> float:
    """Return a time of a reply in Unix seconds. Times are ISO 8601 (`2026-09-18T08:22:00Z`) or HTTP dates
    (`Mon, 19 Sep 2026 18:29:47 GMT`), and in UTC if they name no zone. Raises SourceError, with `name`, for
    any other value.
    """
    if not isinstance(text, str) or not text:
        raise SourceError(f"{name}: {str(text)[:40]!r} is not a time")
    try:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError) as error:
        raise SourceError(f"{name}: {text[:40]!r} is not a time") from error
