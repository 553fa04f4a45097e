"""Reports of programs that another node is about to disappear. Their frames are untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_agents.pods.fields import MessageError, show, text, whole
from convoy_crds.spotpool_status import NoticeSource

MAX_NAME = 253
"""Maximum length of a node name in characters."""
MAX_UNIX_MS = 2**43
"""Maximum of a time in Unix milliseconds, in the year 2248."""


@dataclass(frozen=True, slots=True)
class Draining:
    """A report of a job's program: another node is about to disappear."""

    node: str
    """Name of the node, or the IP of one of the job's pods."""
    deadline: float
    """Unix seconds at which the node may disappear."""


def parse_draining(frame: Mapping[str, Any]) -> Draining:
    """Parse a rank's `draining` frame. Raises MessageError for an invalid field."""
    if frame.get("source") != NoticeSource.RAY:
        raise MessageError(f"source: {show(frame.get('source'))} is not {NoticeSource.RAY.value}")
    node = text(frame, "node", MAX_NAME + 1)
    if not 0 < len(node) <= MAX_NAME:
        raise MessageError(f"node: {show(node)} is not a name of 1 to {MAX_NAME} characters")
    return Draining(node, whole(frame, "deadlineMs", MAX_UNIX_MS) / 1000)
