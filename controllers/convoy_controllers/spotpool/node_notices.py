"""Reads notices from the taints and conditions of a Node, and finds the node of a notice."""

from __future__ import annotations

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


def about(node: Node, notices: Iterable[Notice]) -> Iterator[Notice]:
    """Yield the notices about this node. A notice about an earlier Node or boot of the same name is not."""
    for notice in notices:
        if notice.provider_id and node.provider_id:
            same = notice.provider_id == node.provider_id
        else:
            same = notice.node_name == node.name
        if same and notice.node_uid in ("", node.uid) and notice.boot_id in ("", node.boot_id):
            yield notice


def _seconds(time: Any) -> float:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return 0.0
