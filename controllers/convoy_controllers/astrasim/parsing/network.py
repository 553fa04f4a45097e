"""Reads the network of a simulation: a list of dimensions, or a graph of links."""

from __future__ import annotations

from convoy_controllers.astrasim.parameters import AnyNetwork, Backend, Dimension, Network, Topology
from convoy_controllers.astrasim.parsing.fields import Field
from convoy_controllers.astrasim.parsing.graph import MOST_RANKS, bandwidth, graph_network

MOST_DIMENSIONS = 16
NETWORK_FIELDS = frozenset({"topology", "npus_count", "bandwidth_GBps", "latency_ns"})


def network(field: Field, backend: Field) -> AnyNetwork:
    """Return the network. With a `type` it is a graph, otherwise it has dimensions."""
    if field.has("type"):
        return graph_network(field, backend)
    field.only(NETWORK_FIELDS)
    topologies = [one.choice(Topology) for one in field["topology"].items()]
    if not 1 <= len(topologies) <= MOST_DIMENSIONS:
        raise field["topology"].error(f"needs 1 to {MOST_DIMENSIONS} dimensions, has {len(topologies)}")
    ranks = [one.whole(2, MOST_RANKS) for one in field["npus_count"].items()]
    bandwidths = list(map(bandwidth, field["bandwidth_GBps"].items()))
    latencies = [one.number() for one in field["latency_ns"].items()]
    for name, values in (("npus_count", ranks), ("bandwidth_GBps", bandwidths), ("latency_ns", latencies)):
        if len(values) != len(topologies):
            raise field[name].error(
                f"needs {len(topologies)} entries, one for each topology, has {len(values)}"
            )
    found = Network(
        backend.choice(Backend),
        tuple(map(Dimension, topologies, ranks, bandwidths, latencies)),
    )
    if found.ranks > MOST_RANKS:
        raise field["npus_count"].error(f"may be at most {MOST_RANKS} ranks in all, are {found.ranks}")
    if found.backend is not Backend.UNAWARE and len(topologies) > 1:
        kind = "congestion-aware" if found.backend is Backend.AWARE else "fair-share"
        raise field["topology"].error(f"the {kind} network has one dimension only, unless it is a graph")
    if found.backend is Backend.AWARE and topologies[0] is Topology.RING and ranks[0] == 2:
        raise field["npus_count"].error("a congestion-aware Ring needs at least 3 ranks")
    return found
