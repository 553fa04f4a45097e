"""Tests of the simulator astrasim: a data-parallel step on a network model."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_crds.perturbations import PerturbationKind
from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation

DIMENSION: Any = {"topology": "Ring", "ranks": 8, "bandwidthGBps": 50.0, "latencyNs": 500.0}
PLAIN: Any = {
    "dimensions": [DIMENSION],
    "splits": 4,
    "activeChunks": 1,
    "memoryGBps": 50.0,
    "buckets": 1,
    "bucketBytes": 1 << 20,
    "noise": 0,
}
LINK: Any = {"from": 0, "to": 1, "bandwidthGBps": 50.0, "latencyNs": 500.0}
SLOW = Perturbation(kind=PerturbationKind.SLOW_RANK, magnitude=2)


def test_a_step_of_one_bucket_has_its_closed_form() -> None:
    figures = run("astrasim", PLAIN, 1).figures
    assert figures["computeSeconds"] == figures["offeredComputeSeconds"] == pytest.approx(0.013)
    # The all-reduce of ASTRA-sim's own test lasts 117,780 ns. Nothing runs beside it.
    assert figures["exposedSeconds"] == figures["communicationSeconds"] == pytest.approx(117_780e-9)
    assert figures["stepSeconds"] == pytest.approx(0.013 + 117_780e-9)
    assert (figures["messages"], figures["sentBytes"]) == (8 * 4 * 14, 8 * 14 * (1 << 17))


def test_later_buckets_hide_communication() -> None:
    one = run("astrasim", PLAIN, 1).figures
    four = run("astrasim", PLAIN | {"buckets": 4, "bucketBytes": 1 << 18}, 1).figures
    assert four["exposedSeconds"] < one["exposedSeconds"] < four["communicationSeconds"]


def test_the_seed_decides_the_noise_of_the_ranks() -> None:
    noisy = PLAIN | {"noise": 0.1}
    assert run("astrasim", noisy, 1) == run("astrasim", noisy, 1) != run("astrasim", noisy, 2)
    assert run("astrasim", PLAIN, 1) == run("astrasim", PLAIN, 2)


def test_a_slow_rank_delays_the_step_of_all() -> None:
    usual, slow = run("astrasim", PLAIN, 3), run("astrasim", PLAIN, 3, SLOW)
    assert slow.achieved == 2 and usual.achieved is None
    assert slow.figures["stepSeconds"] == pytest.approx(2 * 0.013 + 117_780e-9)
    assert slow.figures["exposedShare"] > usual.figures["exposedShare"]
    assert slow.figures["offeredComputeSeconds"] == usual.figures["offeredComputeSeconds"]


@pytest.mark.parametrize("algorithm", ["ring", "direct", "direct3", "halvingDoubling", "doubleBinaryTree"])
@pytest.mark.parametrize("network", ["unaware", "aware"])
def test_every_algorithm_ends_and_more_bandwidth_helps(algorithm: str, network: str) -> None:
    def seconds(bandwidth: float) -> float:
        dimension = DIMENSION | {"allReduce": algorithm, "bandwidthGBps": bandwidth}
        return run("astrasim", PLAIN | {"network": network, "dimensions": [dimension]}, 1).figures[
            "stepSeconds"
        ]

    assert seconds(100.0) < seconds(50.0)


def test_a_step_runs_on_several_dimensions() -> None:
    two = PLAIN | {"dimensions": [DIMENSION | {"ranks": 4}, DIMENSION | {"ranks": 2, "bandwidthGBps": 5.0}]}
    aware = run("astrasim", two, 1).figures
    baseline = run("astrasim", two | {"localBandwidthAware": False}, 1).figures
    # The slow dimension carries a quarter of the bytes only after a reduce-scatter in the fast one.
    assert aware["communicationSeconds"] < baseline["communicationSeconds"]


@pytest.mark.parametrize("network", ["aware", "fairShare"])
def test_a_ring_of_links_has_the_figures_of_the_ring(network: str) -> None:
    ring = run("astrasim", PLAIN | {"network": network}, 1)
    links = [LINK | {"from": rank, "to": (rank + 1) % 8} for rank in range(8)]
    fabric = {"network": network, "fabric": "graph", "dimensions": [{"ranks": 8}], "links": links}
    assert run("astrasim", PLAIN | fabric, 1).figures == ring.figures
    # The steps of the all-reduce follow each other, so the link waits for latencies and computation.
    assert 0 < ring.figures["bottleneckUtilisation"] < 1
    assert run("astrasim", PLAIN, 1).figures["bottleneckUtilisation"] == 0


@pytest.mark.parametrize("network", ["unaware", "aware", "fairShare"])
def test_a_torus_is_faster_than_a_mesh_and_a_fat_tree_runs(network: str) -> None:
    dimensions = [{"ranks": 4, "bandwidthGBps": 50.0}] * 2
    seconds = {}
    for fabric in ("mesh", "torus", "fatTree"):
        params = PLAIN | {"network": network, "fabric": fabric, "dimensions": dimensions}
        seconds[fabric] = run("astrasim", params, 1).figures["communicationSeconds"]
    # A ring on a mesh sends messages from one end of a row to the other.
    assert seconds["torus"] < seconds["mesh"] and seconds["fatTree"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimensions": []}, "params.dimensions: List should have at least 1 item"),
        ({"dimensions": [DIMENSION | {"ranks": 1}]}, "params.dimensions.0.ranks: "),
        ({"dimensions": [DIMENSION | {"allReduce": "tree"}]}, "params.dimensions.0.allReduce: "),
        (
            {"dimensions": [DIMENSION | {"ranks": 6, "allReduce": "halvingDoubling"}]},
            "params: dimensions[0].allReduce: halvingDoubling needs a power of two of ranks, has 6",
        ),
        ({"dimensions": [DIMENSION | {"ranks": 64}] * 2}, "params: dimensions: may have at most 1024 ranks"),
        (
            {"network": "aware", "dimensions": [DIMENSION] * 2},
            "params: dimensions: the network aware has one",
        ),
        (
            {"network": "fairShare", "dimensions": [DIMENSION] * 2},
            "params: dimensions: the network fairShare has one",
        ),
        ({"fabric": "torus"}, "params: dimensions[0].topology: has no effect, because fabric is set"),
        (
            {"fabric": "fatTree", "dimensions": [{"ranks": 8}]},
            "params: dimensions: a fat tree has",
        ),
        ({"fabric": "graph", "dimensions": [{"ranks": 8}]}, "params: links: the fabric graph needs links"),
        ({"links": [LINK]}, "params: links: the fabric graph needs links, and no other"),
        (
            {"fabric": "graph", "dimensions": [{"ranks": 2}], "links": [LINK, LINK]},
            "params.links[1]: another link already connects these nodes",
        ),
        (
            {"fabric": "graph", "dimensions": [{"ranks": 3}], "links": [LINK]},
            "params.links: there is no way from rank 0 to rank 2",
        ),
        (
            {"fabric": "graph", "dimensions": [{"ranks": 2}], "links": [LINK | {"bandwidthGBps": 0}]},
            "params.links.0.bandwidthGBps: ",
        ),
        (
            {"network": "aware", "dimensions": [DIMENSION | {"ranks": 2}]},
            "params: dimensions: a Ring of the network aware needs at least 3 ranks",
        ),
        (
            {"dimensions": [DIMENSION | {"ranks": 1024}], "buckets": 64},
            "params: the step has about 536346624 messages, more than 5000000",
        ),
    ],
)
def test_wrong_parameters_are_refused_with_their_path(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSimulation) as caught:
        run("astrasim", PLAIN | changes, 1)
    assert str(caught.value).startswith(message)


def test_a_computation_without_duration_lasts_1_ns() -> None:
    nothing = {"forwardSeconds": 0, "backwardSeconds": 0, "optimizerSeconds": 0}
    assert run("astrasim", PLAIN | nothing, 1).figures["stepSeconds"] == pytest.approx(117_783e-9)
