"""Reads notices from the taints and conditions of a Node, and finds the node of a notice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from convoy_controllers.cached import Node
from convoy_controllers.spotpool.conventions import CONDITIONS, TAINTS
from convoy_controllers.spotpool.notice import Notice
from convoy_crds.spotpool_status import NoticeSource


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
        yield Notice(
            NoticeSource.CONDITION,
            node.name,
            node.uid,
            node.boot_id,
            node.provider_id,
            CONDITIONS[condition],
        )


class NoticeIndex:
    """Finds the notices about a node, by the id of its instance or by its name."""

    def __init__(self, notices: Iterable[Notice]) -> None:
        self._by_instance: dict[str, list[Notice]] = defaultdict(list)
        self._by_name: dict[str, list[Notice]] = defaultdict(list)
        for notice in notices:
            self._by_instance[notice.provider_id].append(notice)
            self._by_name[notice.node_name].append(notice)

    def about(self, node: Node) -> list[Notice]:
        """Return the notices about this node, but none about an earlier Node or boot of the same name."""
        by_instance = self._by_instance.get(node.provider_id, ()) if node.provider_id else ()
        by_name = [
            one for one in self._by_name.get(node.name, ()) if not (one.provider_id and node.provider_id)
        ]
        return [
            one
            for one in (*by_instance, *by_name)
            if one.node_uid in ("", node.uid) and one.boot_id in ("", node.boot_id)
        ]


def _seconds(time: Any) -> float:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return 0.0
