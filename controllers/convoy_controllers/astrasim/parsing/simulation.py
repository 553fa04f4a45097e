"""Reads a simulation in the form of the oracle's cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy_controllers.astrasim.parameters import AnyNetwork, Simulation
from convoy_controllers.astrasim.parsing.fields import Field
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


def simulation(body: Any, path: str = "", other: Callable[[Field], AnyNetwork] | None = None) -> Simulation:
    """Return a simulation. Raises InvalidInput with the path of the first invalid field.

    `other`: returns a network in place of the one in the body. It gets the field of the backend.
    """
    field = Field(body, path)
    field.only(FIELDS)
    found = network(field["network"], field["backend"]) if other is None else other(field["backend"])
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
