"""Makes the network from the parameters."""

from __future__ import annotations

import math
from typing import Any

from convoy_controllers.astrasim.parameters import (
    AnyNetwork,
    Backend,
    Dimension,
    Network,
    Topology,
)
from convoy_controllers.astrasim.parsing.fields import Field, InvalidInput
from convoy_controllers.astrasim.parsing.graph import graph_network
from convoy_workloads.simulators.astrasim.params import NetworkDimension, Params
from convoy_workloads.simulators.simulator import InvalidSimulation


def network(params: Params) -> AnyNetwork:
    """Return the network. Raises InvalidSimulation for links that connect no network."""
    if params.fabric is None:
        return Network(Backend(params.network), tuple(map(_dimension, params.dimensions)))
    try:
        return graph_network(Field(_body(params), ""), Field(params.network, "network"))
    except InvalidInput as error:
        raise InvalidSimulation(f"params.{error}") from error


def _dimension(one: NetworkDimension) -> Dimension:
    return Dimension(Topology(one.topology), one.ranks, one.bandwidth, one.latency)


def _body(params: Params) -> dict[str, Any]:
    """Return the network in the form of `convoy what-if`."""
    dimensions = params.dimensions
    sizes = [one.ranks for one in dimensions]
    ranks = math.prod(sizes)
    match params.fabric:
        case "fatTree":
            (first, *_) = dimensions
            return {
                "type": "fatTree",
                "k": round((4 * ranks) ** (1 / 3)),
                "bandwidth_GBps": first.bandwidth,
                "latency_ns": first.latency,
                "dimensions": sizes,
            }
        case "graph":
            names = {node for one in params.links for node in (one.start, one.end) if isinstance(node, str)}
            return {
                "type": "graph",
                "npus_count": ranks,
                "switches": sorted(names),
                "links": [
                    {
                        "from": one.start,
                        "to": one.end,
                        "bandwidth_GBps": one.bandwidth,
                        "latency_ns": one.latency,
                        "duplex": one.duplex,
                    }
                    for one in params.links
                ],
                "dimensions": sizes,
            }
        case kind:
            return {
                "type": kind,
                "npus_count": sizes,
                "bandwidth_GBps": [one.bandwidth for one in dimensions],
                "latency_ns": [one.latency for one in dimensions],
            }
