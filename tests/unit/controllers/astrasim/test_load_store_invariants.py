"""Properties of every run of the load/store mode, on random setups."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import cases
from tests.unit.controllers.astrasim.load_store_setups import EVENTS, setups

from convoy_controllers.astrasim.loadstore.algorithms import phases
from convoy_controllers.astrasim.loadstore.events import play
from convoy_controllers.astrasim.loadstore.fabric import route
from convoy_controllers.astrasim.loadstore.limits import events
from convoy_controllers.astrasim.loadstore.parameters import Setup, Skew, Sync
from convoy_controllers.astrasim.loadstore.program import active_workgroups

quick = settings(max_examples=cases(20), deadline=None)
REORDERED = 1.01
"""Greatest factor of the time by more requests in flight. They change the order of lines on a link."""


def no_skew(setup: Setup) -> Skew:
    """Return the skew of GPUs that are all the same, with which every GPU is played."""
    return Skew((0.0,) * setup.links.gpus, (1.0,) * setup.links.gpus)


@quick
@given(setups())
def test_one_gpu_shows_the_figures_of_all(setup: Setup) -> None:
    one, every = play(setup, EVENTS), play(setup, EVENTS, no_skew(setup))
    assert one.time == every.time
    assert every.moved == setup.links.gpus * one.moved


@quick
@given(setups())
def test_all_bytes_arrive_and_cross_the_links_of_their_route(setup: Setup) -> None:
    played = play(setup, EVENTS)
    links = setup.links
    expected = 0
    flags = active_workgroups(setup) if setup.sync is Sync.WORKGROUP else 1
    on_links = 0
    for phase in phases(setup):
        lines = -(-phase.size // setup.gpu.line)
        for peer in phase.peers:
            there, back = (len(route(links.fabric, links.gpus, way)) for way in (peer, links.gpus - peer))
            expected += phase.size
            # Data and their header one way, a header the other way, and a header for each flag.
            on_links += there * (phase.size + (lines + flags) * links.header) + back * lines * links.header
    assert played.moved == expected
    assert sum(played.links.values()) == on_links


@quick
@given(setups())
def test_a_run_is_deterministic_and_its_parts_are_its_time(setup: Setup) -> None:
    played = play(setup, EVENTS)
    assert played == play(setup, EVENTS)
    assert sum(played.parts.values()) == played.time


@quick
@given(setups())
def test_the_estimate_covers_the_events_of_a_run(setup: Setup) -> None:
    played, estimate = play(setup, EVENTS).events, events(setup, every_gpu=False)
    assert played <= estimate <= 3 * played + 100


@quick
@given(setups(), st.sampled_from([1.1, 2.0, 7.0]))
def test_more_bandwidth_and_less_latency_are_never_slower(setup: Setup, factor: float) -> None:
    base = play(setup, EVENTS).time
    links = setup.links
    for better in (
        replace(links, bandwidth=links.bandwidth * factor),
        replace(links, latency=links.latency / factor),
    ):
        assert play(replace(setup, links=better), EVENTS).time <= base
    nearer = replace(setup.gpu, cache=setup.gpu.cache / factor, memory=setup.gpu.memory / factor)
    assert play(replace(setup, gpu=nearer), EVENTS).time <= base


@quick
@given(setups())
def test_more_requests_in_flight_are_not_slower(setup: Setup) -> None:
    more = replace(setup.gpu, outstanding=setup.gpu.outstanding + 1)
    assert play(replace(setup, gpu=more), EVENTS).time <= REORDERED * play(setup, EVENTS).time


@quick
@given(setups(), st.integers(1, 3))
def test_a_late_or_slow_gpu_delays_the_others(setup: Setup, victim: int) -> None:
    gpus = setup.links.gpus
    launch, slow = [0.0] * gpus, [1.0] * gpus
    launch[victim % gpus] = 5000.0
    base = play(setup, EVENTS).time
    late = play(setup, EVENTS, Skew(tuple(launch), tuple(slow))).time
    # The late GPU's lines may now wait for others' lines that they do not meet without the delay.
    assert base < late <= 1.5 * base + 5000
    slow[victim % gpus] = 2.0
    assert play(setup, EVENTS, Skew((0.0,) * gpus, tuple(slow))).time >= base


@example(size=1)
@given(size=st.integers(1, 20_000))
@settings(max_examples=cases(20), deadline=None)
def test_every_workgroup_that_runs_has_a_line(size: int) -> None:
    setup = Setup(size=size)
    lines = -(-size // setup.gpu.line)
    assert active_workgroups(setup) == min(setup.gpu.workgroups, lines)
