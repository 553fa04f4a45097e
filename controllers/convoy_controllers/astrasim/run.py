"""Plays a simulation."""

from __future__ import annotations

from convoy_controllers.astrasim.clock import BudgetExhausted, Clock, ClockStopped
from convoy_controllers.astrasim.collective.errors import NodeError
from convoy_controllers.astrasim.network.transport import RendezvousTransport, Transport
from convoy_controllers.astrasim.parameters import Simulation
from convoy_controllers.astrasim.result import Finding, FindingKind, Result
from convoy_controllers.astrasim.size import too_large
from convoy_controllers.astrasim.symmetry import MirrorTransport, is_symmetric
from convoy_controllers.astrasim.workload.check import check
from convoy_controllers.astrasim.workload.diagnosis import diagnose
from convoy_controllers.astrasim.workload.rank import Rank

EVENTS = 50_000_000
"""Events that a run may play: about five minutes."""


def run(simulation: Simulation, events: int = EVENTS, collapse: bool = True) -> Result:
    """Play a simulation and return the figures, or findings if it cannot end.

    A run always ends, at the latest after `events` events. With `collapse`, one rank is played for all where
    all behave the same; the figures are equal.
    """
    ranks = len(simulation.workload.ranks)
    nothing = (None,) * ranks
    collapses = collapse and ranks > 1 and is_symmetric(simulation)
    if not collapses and (large := too_large(simulation)):
        return Result(nothing, (large,))
    if found := check(simulation):
        return Result(nothing, tuple(found))
    if collapses:
        return _run_collapsed(simulation, events)
    if ranks > events:
        # Each rank needs an event. To build the ranks may take longer than to play the events.
        return Result(nothing, (_exhausted(events),))
    clock = Clock()
    make = RendezvousTransport if simulation.options.rendezvous else Transport
    transport = make(clock, simulation.network)
    played = [Rank(number, simulation, clock, transport) for number in range(ranks)]
    findings = _play(played, clock, transport, simulation, events)
    return Result(
        tuple(rank.figures for rank in played),
        tuple(findings),
        messages=transport.messages,
        message_bytes=transport.bytes,
        events=clock.events,
        links=transport.busiest(),
    )


def _run_collapsed(simulation: Simulation, events: int) -> Result:
    ranks = len(simulation.workload.ranks)
    clock = Clock()
    transport = MirrorTransport(clock, simulation.network)
    rank = Rank(0, simulation, clock, transport)
    findings = _play([rank], clock, transport, simulation, events)
    return Result(
        (rank.figures,) * ranks,
        tuple(findings),
        messages=transport.messages * ranks,
        message_bytes=transport.bytes * ranks,
        events=clock.events,
        links=transport.busiest(),
        collapsed=True,
    )


def _play(
    ranks: list[Rank], clock: Clock, transport: Transport, simulation: Simulation, events: int
) -> list[Finding]:
    """Play to the end, and return what is wrong."""
    try:
        for rank in ranks:
            rank.start()
        clock.run(events)
    except NodeError as error:
        rank = next(one for one in ranks if one.issuing is not None)
        return [Finding(error.kind, error.message, rank.number, rank.issuing)]
    except ClockStopped:
        return [
            Finding(
                FindingKind.CLOCK,
                "an event is due at time 0: raise the endpoint delay, the latency or the durations",
            )
        ]
    except BudgetExhausted:
        return [_exhausted(events)]
    return diagnose(ranks, transport, simulation)


def _exhausted(events: int) -> Finding:
    return Finding(FindingKind.BUDGET, f"the run needs more than its {events} events: raise the budget")
