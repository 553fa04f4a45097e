"""Reads a simulation in the form of the oracle's cases."""

from __future__ import annotations

from typing import Any

from convoy_controllers.astrasim.network.fabrics.fabric import Fabric
from convoy_controllers.astrasim.parameters import Backend, GraphNetwork, Simulation
from convoy_controllers.astrasim.parsing.fields import Field
from convoy_controllers.astrasim.parsing.graph import logical_sizes
from convoy_controllers.astrasim.parsing.network import network
from convoy_controllers.astrasim.parsing.system import options, system
from convoy_controllers.astrasim.parsing.workload import communication_groups, workload

FIELDS = frozenset(
    {
        "id",
        "kind",
        "note",
        "npus",
        "backend",
        "network",
        "system",
        "options",
        "comm_groups",
        "workload",
        "result",
    }
)


def simulation(body: Any, path: str = "", fabric: Fabric | None = None) -> Simulation:
    """Return a simulation. Raises InvalidInput with the path of the first invalid field.

    `fabric`: links in place of those in the body. Of the body's network only `dimensions` then counts.
    """
    field = Field(body, path)
    field.only(FIELDS)
    found = network(field["network"], field["backend"]) if fabric is None else _on(fabric, field)
    if field.has("npus") and field["npus"].whole() != found.ranks:
        raise field["npus"].error(f"must be {found.ranks}, the number of ranks of the network")
    given = field["options"] if field.has("options") else Field({}, f"{path}.options")
    groups = communication_groups(field["comm_groups"], found.ranks) if field.has("comm_groups") else {}
    return Simulation(
        found,
        system(field["system"], given, len(found.sizes)),
        workload(field["workload"], groups, found.ranks),
        options(given),
    )


def _on(fabric: Fabric, field: Field) -> GraphNetwork:
    network_field = field["network"] if field.has("network") else Field({}, f"{field.path}.network")
    sizes = logical_sizes(network_field, fabric.ranks)
    return GraphNetwork(field["backend"].choice(Backend), fabric, sizes)
