"""The interface of all metadata services that announce the end of an instance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

from convoy_crds.spotpool_status import NoticeKind

POLL_SECONDS = 4.0
"""Maximum seconds of one poll. A poll makes at most three requests, each with a timeout of its own."""


class SourceError(Exception):
    """The service gave no valid reply. The message says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A notice in a reply of the service."""

    kind: NoticeKind = NoticeKind.PREEMPTION
    deadline: float = 0.0
    """Unix seconds at which the instance may disappear; 0 if the service does not say."""
    provider_id: str = ""
    """Id of another instance, as in its Node's `spec.providerID`; empty for the agent's own node."""


class NoticeSource(Protocol):
    """A metadata service."""

    async def poll(self) -> tuple[Finding, ...]:
        """Return the notices that hold at present. Raises SourceError."""
        ...


def unix_seconds(text: object, name: str) -> float:
    """Return a time of a reply in Unix seconds. Times are ISO 8601 (`2026-09-18T08:22:00Z`) or HTTP dates
    (`Mon, 19 Sep 2026 18:29:47 GMT`), and in UTC if they name no zone. Raises SourceError.
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
