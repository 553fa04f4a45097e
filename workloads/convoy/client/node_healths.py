"""The collection of NodeHealths, with methods to read the health of nodes and to record administrators'
decisions.

A decision is stored in the `spec` of the NodeHealth, with its author and reason.
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
    """The health of the nodes' hardware. The operator creates these objects.

    The parameter `node` is the name of a node or of a NodeHealth. Methods that change a NodeHealth raise
    NotFound if no NodeHealth matches. They raise Refused if several machines have had that node name.
    """

    def __init__(self, api: Api, kind: Kind[NodeHealth] = KIND) -> None:
        super().__init__(api, kind)

    def of(self, node: str) -> list[NodeHealth]:
        """Return all NodeHealths that match `node`; an empty list if none matches."""
        return matching(self.list(), node)

    def release(self, node: str, reason: str, user: str | None = None) -> NodeHealth:
        """Return a node to service on probation, and discard the evidence against the node."""
        at = _text(datetime.now(UTC))
        return self._patch_spec(
            node, {"release": {"at": at, **_attribution(reason, user)}, "condemned": None}
        )

    def exempt(self, node: str, reason: str, hours: int = 24, user: str | None = None) -> NodeHealth:
        """Exempt a node from Convoy's actions for `hours`. During the exemption Convoy ignores evidence
        against the node.
        """
        if not 1 <= hours <= MOST_EXEMPT_HOURS:
            raise ValueError(f"hours must be from 1 to {MOST_EXEMPT_HOURS}, is {hours}")
        until = datetime.now(UTC) + timedelta(hours=hours)
        return self._patch_spec(node, {"exempt": {"until": _text(until), **_attribution(reason, user)}})

    def end_exemption(self, node: str) -> NodeHealth:
        """End the exemption of a node."""
        return self._patch_spec(node, {"exempt": None})

    def condemn(self, node: str, reason: str, user: str | None = None) -> NodeHealth:
        """Take a node out of service until `end_condemnation` is called. Also remove an exemption of the
        node.
        """
        return self._patch_spec(node, {"condemned": _attribution(reason, user), "exempt": None})

    def end_condemnation(self, node: str) -> NodeHealth:
        """End the condemnation of a node. Convoy then tests the node again."""
        return self._patch_spec(node, {"condemned": None})

    def _patch_spec(self, node: str, spec: dict[str, JsonValue]) -> NodeHealth:
        return self._patch(only_match(self.of(node), node).metadata.name, {"spec": spec})


def matching(healths: Sequence[NodeHealth], name: str) -> list[NodeHealth]:
    """Return the NodeHealths of the nodes with this name. If there are none, return the NodeHealth that
    itself has this name.
    """
    by_node = [one for one in healths if one.status.node_ref.name == name]
    return by_node or [one for one in healths if one.metadata.name == name]


def only_match(found: Sequence[NodeHealth], node: str) -> NodeHealth:
    """Return the only NodeHealth in `found`. Raises NotFound if `found` is empty, and Refused if it
    contains several.
    """
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"no NodeHealth for node {node}: `kubectl get nodehealths` lists the known nodes", 404)
    names = ", ".join(one.metadata.name for one in found)
    raise Refused(
        f"several machines have had the name {node}: give one of these NodeHealths instead: {names}"
    )


def _attribution(reason: str, user: str | None) -> dict[str, JsonValue]:
    return {"reason": reason, "user": user or _user()}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # The user of a container often has no name, so give the uid instead.
        return f"uid {os.getuid()}"


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
