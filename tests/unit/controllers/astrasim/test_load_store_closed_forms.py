"""The load/store mode against closed forms: Little's law, bandwidth, textbook algorithms, fabrics, hybrid."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.unit.controllers.astrasim.load_store_setups import EVENTS, copy

from convoy_controllers.astrasim.loadstore import analytical
from convoy_controllers.astrasim.loadstore.events import play
from convoy_controllers.astrasim.loadstore.parameters import (
    Access,
    Algorithm,
    Fabric,
    Gpu,
    Links,
    Mode,
    Setup,
    Sync,
)
from convoy_controllers.astrasim.loadstore.run import run
from convoy_controllers.astrasim.loadstore.workgroup import Part
from convoy_controllers.astrasim.parameters import CollectiveType

LINE = 128
ROUND_TRIP = 601
"""ns of a line in `copy`: cache 50, link 200, memory 100, link 200, cache 50, and 1 on the link."""
PUT_FLAG = 50 + 200 + 100 + 50


@pytest.mark.parametrize("access", Access)
@pytest.mark.parametrize(
    ("workgroups", "outstanding"),
    [(1, 1), (1, 7), (3, 5), (20, 30), (1, 600), (1, 601), (1, 602), (8, 128), (64, 64)],
)
def test_littles_law_holds_exactly(access: Access, workgroups: int, outstanding: int) -> None:
    """In the steady state a GPU moves min(bandwidth, W G line / round-trip time).

    Two copies that differ by a whole number of windows have the same start and end, so the difference of
    their times is that of the steady state.
    """
    short, long = (run(copy(windows * outstanding, workgroups, outstanding, access)) for windows in (2, 5))
    extra = Fraction(long.moved - short.moved)
    expected = min(Fraction(LINE), Fraction(workgroups * outstanding * LINE, ROUND_TRIP))
    assert extra / (long.time - short.time) == expected
    assert analytical.throughput(copy(outstanding, workgroups, outstanding, access)) == expected


def test_the_time_of_a_copy_is_exact_to_the_ns() -> None:
    # Bandwidth: the first line is on the link after 50 ns, 4,000 lines follow, the last one returns; flag.
    assert run(copy(4000, 1, 1000)).time == 4000 + (ROUND_TRIP - 1) + PUT_FLAG
    # Little's law: ten windows of 30 lines, the last of which ends 30 lines after the first.
    assert run(copy(100, 3, 10)).time == 10 * ROUND_TRIP + 29 + PUT_FLAG
    # One line at a time.
    assert run(copy(5, 1, 1)).time == 5 * ROUND_TRIP + PUT_FLAG


def test_the_issue_rate_limits_the_throughput() -> None:
    slow = copy(1000, 2, 600)
    slow = replace(slow, gpu=replace(slow.gpu, issue=4))
    # Two workgroups issue a line each every 4 ns. The flag takes another place of the issue.
    assert run(slow).time == 999 * 4 + 2 + (ROUND_TRIP - 1) + PUT_FLAG
    assert analytical.throughput(slow) == Fraction(2 * LINE, 4)


@pytest.mark.parametrize("access", Access)
@pytest.mark.parametrize("fabric", [Fabric.SWITCH, Fabric.FULLY_CONNECTED])
def test_a_large_message_takes_its_size_over_the_bandwidth(access: Access, fabric: Fabric) -> None:
    setup = Setup(
        collective=CollectiveType.ALL_GATHER,
        algorithm=Algorithm.DIRECT,
        access=access,
        size=1 << 19,
        mode=Mode.EVENTS,
        gpu=Gpu(workgroups=8, outstanding=64, cache=10, memory=10, launch=0),
        links=Links(fabric=fabric, gpus=2, bandwidth=10, latency=20),
    )
    ideal = setup.size / 10
    assert ideal < run(setup).time < 1.01 * ideal
    large = replace(setup, size=1 << 30, mode=Mode.ANALYTICAL)
    assert large.size / 10 < run(large).time < 1.0001 * large.size / 10


def gpu_alone(algorithm: Algorithm, size: int) -> Setup:
    """Return an all-reduce by one workgroup of each GPU, with phases that follow each other."""
    return Setup(
        algorithm=algorithm,
        size=size,
        mode=Mode.EVENTS,
        sync=Sync.GPU,
        gpu=Gpu(
            workgroups=1, outstanding=4096, issue=0, cache=50, memory=100, reduce=0, barrier=7, launch=900
        ),
        links=Links(fabric=Fabric.SWITCH, gpus=4, bandwidth=64, latency=200),
    )


def test_the_algorithms_have_their_textbook_times() -> None:
    """alpha for each phase, and the bytes of the phase over the bandwidth; n is a whole number of lines."""
    size, gpus = 64 * 4 * LINE, 4
    bandwidth = 64
    latency = 2 * 50 + 2 * 2 * 200 + 100
    flag = 50 + 2 * 200 + 100 + 50
    reduce = 2 * 50 + 100
    phase = latency + flag + 2 * 7
    part = size // gpus
    times = {
        one: run(gpu_alone(one, size)).time
        for one in (Algorithm.ONE_SHOT, Algorithm.TWO_SHOT, Algorithm.RING)
    }
    assert times[Algorithm.ONE_SHOT] == 900 + phase + reduce + 3 * size / bandwidth
    assert times[Algorithm.TWO_SHOT] == 900 + 2 * phase + reduce + 2 * 3 * part / bandwidth
    assert times[Algorithm.RING] == 900 + 6 * phase + 3 * reduce + 6 * part / bandwidth


@pytest.mark.parametrize("algorithm", [Algorithm.ONE_SHOT, Algorithm.TWO_SHOT, Algorithm.RING])
@pytest.mark.parametrize("access", Access)
@pytest.mark.parametrize("size", [LINE * 4, 64 * 4 * LINE, 512 * 4 * LINE])
def test_the_closed_form_is_exact_for_one_workgroup(algorithm: Algorithm, access: Access, size: int) -> None:
    setup = replace(gpu_alone(algorithm, size), access=access)
    assert run(setup).time == analytical.time(setup)


@pytest.mark.parametrize("outstanding", [1, 8, 64])
@pytest.mark.parametrize("algorithm", [Algorithm.ONE_SHOT, Algorithm.TWO_SHOT, Algorithm.RING])
@pytest.mark.parametrize("sync", Sync)
def test_events_and_closed_form_agree_in_the_limits(
    algorithm: Algorithm, outstanding: int, sync: Sync
) -> None:
    """Latency-bound (one line in flight) to bandwidth-bound (more lines than the link needs)."""
    setup = Setup(
        algorithm=algorithm,
        size=1 << 16,
        sync=sync,
        mode=Mode.EVENTS,
        gpu=Gpu(workgroups=16, outstanding=outstanding),
        links=Links(gpus=4, bandwidth=50),
    )
    assert run(setup).time == pytest.approx(float(analytical.time(setup)), rel=0.01)


@pytest.mark.parametrize("algorithm", [Algorithm.ONE_SHOT, Algorithm.RING])
@pytest.mark.parametrize("fabric", Fabric)
def test_the_hybrid_mode_has_no_jump_at_its_seam(algorithm: Algorithm, fabric: Fabric) -> None:
    seam = 1 << 15
    setup = Setup(algorithm=algorithm, seam=seam, links=Links(fabric=fabric), gpu=Gpu(workgroups=8))
    at, behind, far = (run(replace(setup, size=size)) for size in (seam, seam + 1, 64 * seam))
    below = run(replace(setup, size=seam, mode=Mode.EVENTS))
    assert at.time == below.time
    # One byte more is at most one more line for each peer and phase: on the link, issued and reduced.
    phases = 1 if algorithm is Algorithm.ONE_SHOT else 14
    line = analytical.time(replace(setup, size=seam + 1)) - analytical.time(replace(setup, size=seam))
    assert at.time <= behind.time == at.time + line
    assert behind.time - at.time <= phases * 7 * (Fraction(128, 450) + 1 + 1)
    assert at.parts is not None and behind.parts is None and behind.events == at.events
    # Far above, the seam has no weight.
    assert far.time == pytest.approx(float(analytical.time(replace(setup, size=64 * seam))), rel=0.01)


def test_the_fabrics_carry_direct_messages_over_their_own_links() -> None:
    """Each of 8 GPUs sends a shard to every peer: over one link, one for each peer, or along a ring."""
    times = {}
    for fabric in Fabric:
        setup = Setup(
            collective=CollectiveType.ALL_TO_ALL,
            algorithm=Algorithm.DIRECT,
            size=1 << 16,
            mode=Mode.EVENTS,
            gpu=Gpu(workgroups=4, outstanding=512, issue=0, cache=0, memory=0, launch=0),
            links=Links(fabric=fabric, bandwidth=10, latency=0.001),
        )
        times[fabric] = float(run(setup).time)
    shard = (1 << 13) / 10
    assert times[Fabric.SWITCH] == pytest.approx(7 * shard, rel=0.01)
    assert times[Fabric.FULLY_CONNECTED] == pytest.approx(shard, rel=0.01)
    # Clockwise 1 + 2 + 3 + 4 hops, the other way 1 + 2 + 3.
    assert times[Fabric.RING] == pytest.approx(10 * shard, rel=0.05)


def test_a_token_bucket_saves_the_time_of_its_bytes() -> None:
    plain, bucket = run(copy(2000, 1, 700)), run(copy(2000, 1, 700, burst=100 * LINE))
    assert plain.time - bucket.time == 100
    assert run(copy(50, 1, 700, burst=100 * LINE)).time == ROUND_TRIP + PUT_FLAG


def test_headers_take_their_share_of_the_bandwidth() -> None:
    # 128 + 2 x 32 bytes for a line cross each link: line, header, and header of an acknowledgement.
    short, long = (run(copy(windows * 700, 1, 700, header=32)) for windows in (3, 6))
    assert (long.time - short.time) / (3 * 700) == pytest.approx(1.5, rel=0.01)


def test_control_that_waits_for_data_slows_loads_more_than_stores() -> None:
    """Requests of a load queue behind the data that the GPU sends; the data of a store do not."""
    times = {
        (access, first): run(copy(1000, 1, 400, access, control_first=first)).time
        for access in Access
        for first in (True, False)
    }
    assert times[Access.GET, False] > times[Access.GET, True]
    assert times[Access.GET, False] >= times[Access.PUT, False]


def test_loads_overlap_the_reduction_and_stores_do_not() -> None:
    setup = Setup(
        collective=CollectiveType.REDUCE_SCATTER,
        algorithm=Algorithm.DIRECT,
        size=1 << 15,
        mode=Mode.EVENTS,
        gpu=Gpu(workgroups=4, reduce=2),
    )
    put, get = (play(replace(setup, access=access), EVENTS) for access in Access)
    assert get.time < put.time
    assert get.parts[Part.REDUCE] == 0 < put.parts[Part.REDUCE]
