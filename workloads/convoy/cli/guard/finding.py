"""The NodeHealth that a person means: by the name of its node, or its own."""

from __future__ import annotations

from collections.abc import Sequence

from convoy_crds.nodehealth import NodeHealth


def meant(healths: Sequence[NodeHealth], name: str) -> list[NodeHealth]:
    """Those that may be meant. Of a name that several pieces of hardware had, those that have it now."""
    by_node = [one for one in healths if one.status.node_ref.name == name]
    return by_node or [one for one in healths if one.metadata.name == name]
