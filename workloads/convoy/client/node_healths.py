"""NodeHealths: what is known of nodes, and what people say of them.

That is written into `spec`, with who says so and why.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from convoy.client.api import Api
from convoy.client.collection import Collection
from convoy.client.errors import NotFound, Refused
from convoy_crds.kind import Kind
from convoy_crds.nodehealth import KIND, MOST_EXEMPT_HOURS, NodeHealth


class NodeHealths(Collection[NodeHealth]):
    """The hardware of the nodes. The operator makes these objects.

    A node is named by its own name, or by that of its NodeHealth. NotFound when nothing is known of it,
    Refused when several machines had that name and none has it now alone.
    """

    def __init__(self, api: Api, kind: Kind[NodeHealth] = KIND) -> None:
        super().__init__(api, kind)

    def of(self, node: str) -> list[NodeHealth]:
        """All that a name may mean; empty when nothing is known of it."""
        return matching(self.list(), node)

    def release(self, node: str, reason: str, user: str | None = None) -> NodeHealth:
        """Puts a node back into service, on probation, and forgets what was held against it."""
        at = _text(datetime.now(UTC))
        return self._patch_spec(
            node, {"release": {"at": at, **_attribution(reason, user)}, "condemned": None}
        )

    def exempt(self, node: str, reason: str, hours: int = 24, user: str | None = None) -> NodeHealth:
        """Leaves a node alone for so many hours, whatever speaks against it."""
        if not 1 <= hours <= MOST_EXEMPT_HOURS:
            raise ValueError(f"hours must be from 1 to {MOST_EXEMPT_HOURS}, is {hours}")
        until = datetime.now(UTC) + timedelta(hours=hours)
        return self._patch_spec(node, {"exempt": {"until": _text(until), **_attribution(reason, user)}})

    def end_exemption(self, node: str) -> NodeHealth:
        """Guards a node again."""
        return self._patch_spec(node, {"exempt": None})

    def condemn(self, node: str, reason: str, user: str | None = None) -> NodeHealth:
        """Takes a node out of service until that is taken back; an exemption ends."""
        return self._patch_spec(node, {"condemned": _attribution(reason, user), "exempt": None})

    def end_condemnation(self, node: str) -> NodeHealth:
        """Has a node that was condemned tested again."""
        return self._patch_spec(node, {"condemned": None})

    def _patch_spec(self, node: str, spec: dict[str, JsonValue]) -> NodeHealth:
        return self._patch(only_match(self.of(node), node).metadata.name, {"spec": spec})


def matching(healths: Sequence[NodeHealth], name: str) -> list[NodeHealth]:
    """Those that a name may mean. Of a name that several pieces of hardware had, those that have it now."""
    by_node = [one for one in healths if one.status.node_ref.name == name]
    return by_node or [one for one in healths if one.metadata.name == name]


def only_match(found: Sequence[NodeHealth], node: str) -> NodeHealth:
    """The one that is meant; NotFound when there is none, Refused for more than one."""
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"nothing is known of node {node}: see kubectl get nodehealths", 404)
    names = ", ".join(one.metadata.name for one in found)
    raise Refused(f"{node} was the name of several machines, say which is meant: {names}")


def _attribution(reason: str, user: str | None) -> dict[str, JsonValue]:
    return {"reason": reason, "user": user or _user()}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A container's user often has no name.
        return f"uid {os.getuid()}"


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
