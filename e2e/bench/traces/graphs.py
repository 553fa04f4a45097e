"""The part graphs: exactness and speed of networks of links.

Speeds count processor time, because the simulator runs on one core.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise

from convoy_controllers.astrasim.network.fabrics.dimension import DimensionFabric
from convoy_controllers.astrasim.network.fabrics.fabric import Fabric, Link
from convoy_controllers.astrasim.network.fabrics.fat_tree import FatTree
from convoy_controllers.astrasim.network.fabrics.graph import LinkGraph
from convoy_controllers.astrasim.network.fabrics.grid import Grid
from convoy_controllers.astrasim.oracle import Case, cases, differences
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    Backend,
    CollectiveNode,
    CollectiveType,
    ComputeNode,
    GraphNetwork,
    Implementation,
    MessageNode,
    Network,
    Node,
    Optimization,
    Simulation,
    System,
    Workload,
)
from convoy_controllers.astrasim.parsing.simulation import simulation
from convoy_controllers.astrasim.result import Result
from convoy_controllers.astrasim.run import run
from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.traces.astrasim import ORACLE, REPEATS, SIZE

BANDWIDTH, LATENCY = 50.0, 500.0
FLOWS = (1, 2, 3, 7, 64, 1000)
PER_NS = BANDWIDTH * (1 << 30) / 1e9
MESSAGE = 1 << 20
LEAST_EVENTS = 100_000


def add(found: Figures) -> None:
    """Add the figures."""
    _one_dimension(found, cases(json.loads(ORACLE.read_text())))
    _closed_forms(found)
    for name, fabric, sizes in (
        ("a torus of 32 x 32 ranks", Grid((32, 32), [BANDWIDTH] * 2, [LATENCY] * 2, wraps=True), (32, 32)),
        ("a fat tree of 1024 ranks", FatTree(16, BANDWIDTH, LATENCY), (32, 32)),
    ):
        for backend in (Backend.AWARE, Backend.FAIR_SHARE):
            _speed(found, name, GraphNetwork(backend, fabric, sizes))


def _one_dimension(found: Figures, listed: list[Case]) -> None:
    """Compare graphs of one dimension with ASTRA-sim's figures with congestion."""
    played = wrong = control = 0
    for case in listed:
        if not case.finishes or case.field["backend"].text() != "aware":
            continue
        read = simulation(case.field.value)
        if not isinstance(read.network, Network):
            continue
        (dimension,) = read.network.dimensions
        graph = _as_graph(DimensionFabric(dimension))
        network = GraphNetwork(Backend.AWARE, graph, (graph.ranks,))
        played += 1
        wrong += bool(differences(case, run(Simulation(network, read.system, read.workload, read.options))))
        other = GraphNetwork(Backend.FAIR_SHARE, graph, (graph.ranks,))
        control += bool(differences(case, run(Simulation(other, read.system, read.workload, read.options))))
    found.add(Metric("ASTRA-sim's cases with congestion that finish, as graphs of links", ""), played)
    found.add(Metric("equality: such cases that differ by a nanosecond or more", "", target=0), wrong)
    found.add(
        Metric(
            "negative control: such cases that fair-share links change", "", target=10, higher_is_better=True
        ),
        control,
    )


def _as_graph(fabric: Fabric) -> LinkGraph:
    """Return the links that a fabric's routes use, as a graph that finds the routes again."""
    ranks = range(fabric.ranks)
    links: dict[tuple[int, int], Link] = {}
    # The links between clockwise neighbours come first, because a ring's ties are clockwise.
    pairs = [(one, (one + 1) % fabric.ranks) for one in ranks]
    pairs += [(one, other) for one in ranks for other in ranks if one != other]
    for source, target in pairs:
        for link in fabric.route(source, target):
            links.setdefault((link.start, link.end), link)
    return LinkGraph(fabric.ranks, ["switch"], list(links.values()))


def _closed_forms(found: Figures) -> None:
    """Compare messages on fair-share links with closed forms."""
    wrong = 0
    for flows in FLOWS:
        expected = int(2 * LATENCY + flows * MESSAGE / PER_NS)
        wrong += _finish(flows, shared=True) != expected
        alone = int(2 * LATENCY + MESSAGE / PER_NS)
        wrong += _finish(flows, shared=False) != alone
    found.add(
        Metric(
            f"fair share: of {2 * len(FLOWS)} sets of 1 to {max(FLOWS)} messages on one link, or on links of "
            "their own, those that differ from the closed form",
            "",
            target=0,
        ),
        wrong,
    )


def _finish(flows: int, shared: bool) -> int:
    """Return the end of equal messages through a switch to one rank, or each to another one."""
    targets = [flows if shared else flows + one for one in range(flows)]
    ranks = max(targets) + 1
    nodes: list[list[Node]] = [[] for _ in range(ranks)]
    for source, target in enumerate(targets):
        nodes[source].append(MessageNode(1, True, target, MESSAGE, source))
        nodes[target].append(MessageNode(source + 2, False, source, MESSAGE, source))
    links = [pair for one in range(ranks) for pair in pairwise((one, ranks, one))]
    graph = LinkGraph(ranks, ["switch"], [Link(*pair, BANDWIDTH, LATENCY) for pair in links])
    played = [tuple(one) or (ComputeNode(1),) for one in nodes]
    network = GraphNetwork(Backend.FAIR_SHARE, graph, (ranks,))
    result = run(Simulation(network, System({}, 1, 1600.0), Workload(tuple(played))))
    return max(one.finish for one in result.ranks if one is not None)


def _speed(found: Figures, name: str, network: GraphNetwork) -> None:
    """Add the speed of a ring all-reduce over two dimensions."""
    node = CollectiveNode(1, CollectiveType.ALL_REDUCE, SIZE)
    system = System(
        {CollectiveType.ALL_REDUCE: (Implementation(AlgorithmKind.RING),) * len(network.sizes)},
        1,
        1600.0,
        optimization=Optimization.LOCAL_BANDWIDTH_AWARE,
    )
    simulated = Simulation(network, system, Workload(((node,),) * network.ranks))
    kind = f"all-reduce over {name}, {network.backend} links"
    events = Metric(
        f"events a second of processor time: {kind}", "1/s", target=LEAST_EVENTS, higher_is_better=True
    )
    messages = Metric(f"messages a second of processor time: {kind}", "1/s")
    for _ in range(REPEATS):
        before = time.process_time()
        result: Result = run(simulated)
        seconds = time.process_time() - before
        if not result.finished:
            raise RuntimeError(f"the simulation does not finish: {result.findings}")
        found.add(events, result.events / seconds)
        found.add(messages, result.messages / seconds)
