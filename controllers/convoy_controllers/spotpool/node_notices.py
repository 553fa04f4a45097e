"""Reads notices from the taints and conditions of a Node, and finds the node of a notice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from convoy_controllers.cached import Announcement, Node
from convoy_controllers.spotpool.conventions import CONDITIONS, EVENTS, TAINTS
from convoy_controllers.spotpool.notice import Notice
from convoy_crds.spotpool_status import NoticeKind, NoticeSource


def marks(node: Node) -> Iterator[Notice]:
    """Yield the notices that other controllers have left on a Node."""
    for taint in node.taints:
        if (kind := TAINTS.get(str(taint.get("key")))) is not None:
            yield Notice(
                NoticeSource.TAINT,
                node.name,
                node.uid,
                node.boot_id,
                node.provider_id,
                kind,
                at=_seconds(taint.get("timeAdded")),
            )
    for condition in node.announcements:
        kind, deadline = _announced(condition)
        if kind is not None:
            yield Notice(
                NoticeSource.CONDITION,
                node.name,
                node.uid,
                node.boot_id,
                node.provider_id,
                kind,
                deadline=deadline,
            )


def _announced(condition: Announcement) -> tuple[NoticeKind | None, float]:
    """Return the kind of the event that a condition announces, and the Unix seconds of its time. None for an
    event that the node survives; 0 without a time.
    """
    event, _, time = condition.message.split(". ")[0].partition(":")
    words = event.split()
    kind = EVENTS.get(words[0]) if words else None
    return (CONDITIONS[condition.type], 0.0) if kind is None else (kind, _http_seconds(time))


class NoticeIndex:
    """Finds the notices about a node, by the id of its instance or by its name."""

    def __init__(self, notices: Iterable[Notice]) -> None:
        self._by_instance: dict[str, list[Notice]] = defaultdict(list)
        self._by_name: dict[str, list[Notice]] = defaultdict(list)
        for notice in notices:
            self._by_instance[_instance(notice.provider_id)].append(notice)
            self._by_name[notice.node_name].append(notice)

    def about(self, node: Node) -> list[Notice]:
        """Return the notices about this node, but none about an earlier Node or boot of the same name."""
        by_instance = self._by_instance.get(_instance(node.provider_id), ()) if node.provider_id else ()
        by_name = [
            one for one in self._by_name.get(node.name, ()) if not (one.provider_id and node.provider_id)
        ]
        return [
            one
            for one in (*by_instance, *by_name)
            if one.node_uid in ("", node.uid) and one.boot_id in ("", node.boot_id)
        ]


def _instance(provider_id: str) -> str:
    """Return a provider id in a form that can be compared. Azure's ids ignore case: its metadata service
    keeps the case of the resource group, and a Node's id has it in lower case (kubernetes/kubernetes#74882).
    """
    return provider_id.lower() if provider_id.startswith("azure://") else provider_id


def _http_seconds(text: str) -> float:
    try:
        found = parsedate_to_datetime(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _seconds(time: Any) -> float:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return 0.0
