"""Setups of the load/store mode for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from convoy_controllers.astrasim.loadstore.algorithms import PLANS
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
from convoy_controllers.astrasim.parameters import CollectiveType

EVENTS = 1_000_000
KINDS = [(collective, algorithm) for collective, known in PLANS.items() for algorithm in known]


def copy(lines: int, workgroups: int, outstanding: int, access: Access = Access.PUT, **links: Any) -> Setup:
    """Return a copy of `lines` lines of 128 bytes for each workgroup between two GPUs.

    A line takes 1 ns on the link, and the latencies of a round trip are 600 ns.
    """
    return Setup(
        collective=CollectiveType.ALL_GATHER,
        algorithm=Algorithm.DIRECT,
        access=access,
        size=lines * workgroups * 128,
        mode=Mode.EVENTS,
        gpu=Gpu(
            workgroups=workgroups,
            outstanding=outstanding,
            line=128,
            issue=0,
            cache=50,
            memory=100,
            reduce=0,
            launch=0,
        ),
        links=replace(
            Links(fabric=Fabric.FULLY_CONNECTED, gpus=2, bandwidth=128, latency=200),
            **links,
        ),
    )


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    """Return a random setup of few lines."""
    collective, algorithm = draw(st.sampled_from(KINDS))
    return Setup(
        collective=collective,
        algorithm=algorithm,
        access=draw(st.sampled_from(Access)),
        size=draw(st.integers(1, 6000)),
        sync=draw(st.sampled_from(Sync)),
        mode=Mode.EVENTS,
        gpu=Gpu(
            workgroups=draw(st.sampled_from([1, 2, 5])),
            outstanding=draw(st.sampled_from([1, 3, 16])),
            line=draw(st.sampled_from([64, 128])),
            issue=draw(st.sampled_from([0, 1, 4])),
            cache=draw(st.sampled_from([0, 50, 200])),
            memory=draw(st.sampled_from([0, 300])),
            reduce=draw(st.sampled_from([0, 0.5, 3])),
            barrier=draw(st.sampled_from([0, 200])),
            launch=draw(st.sampled_from([0, 3000])),
        ),
        links=Links(
            fabric=draw(st.sampled_from(Fabric)),
            gpus=draw(st.sampled_from([2, 3, 4])),
            bandwidth=draw(st.sampled_from([10, 50, 450])),
            latency=draw(st.sampled_from([1, 100, 936.25])),
            header=draw(st.sampled_from([0, 0, 16])),
            burst=draw(st.sampled_from([0, 0, 1024])),
            control_first=draw(st.sampled_from([True, True, False])),
        ),
    )
