"""Passes the notice about the node to the pods on it, as a file in each pod's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from convoy_agents.wire import hub_pb2

MAX_SOURCES = 16
"""Maximum number of sources in the file."""

log = structlog.get_logger()

Write = Callable[[str, Mapping[str, Any] | None], None]
"""Replaces a pod's file, or removes it for None. The first argument is the pod's uid. Raises OSError."""


class PodNotices:
    """The notice about this node, and the files in which its pods read it."""

    def __init__(self, pods: Callable[[], Iterable[str]]) -> None:
        """`pods` returns the uids of the pods on this node."""
        self._pods = pods
        self._current: dict[str, Any] | None = None
        self.write: Write = lambda uid, content: None

    def apply(self, message: hub_pb2.SpotNode) -> None:
        """Pass the notice in a message of the hub to all pods. A message without a notice withdraws it."""
        found = _content(message.notice) if message.HasField("notice") else None
        if found != self._current:
            self._current = found
            log.info("notice about this node", notice=found)
        # Also without a change: an earlier agent may have left files.
        for uid in self._pods():
            self._write(uid)

    def opened(self, uid: str) -> None:
        """Pass the notice to a pod that has just come to this node."""
        if self._current is not None:
            self._write(uid)

    def _write(self, uid: str) -> None:
        try:
            self.write(uid, self._current)
        except OSError as error:
            log.error("notice not written: the program will not learn of it", pod_uid=uid, why=str(error))


def _content(notice: hub_pb2.NodeNotice) -> dict[str, Any]:
    return {
        "kind": notice.kind,
        "sources": list(notice.sources[:MAX_SOURCES]),
        "atMs": notice.at_unix_ms,
        "deadlineMs": notice.deadline_unix_ms,
    }
