"""Algorithms that send one message at a time: ring and halving-doubling.

Each step passes data through the memory, sends a message and waits for one. A last pass ends the phase.
"""

from __future__ import annotations

from collections.abc import Callable

from convoy_controllers.astrasim.collective.chunk import Site
from convoy_controllers.astrasim.collective.halving import halving_doubling_steps
from convoy_controllers.astrasim.collective.insertions import reductions, rounds
from convoy_controllers.astrasim.collective.phase import RingPhase
from convoy_controllers.astrasim.network.medium import Key
from convoy_controllers.astrasim.parameters import CollectiveType


def ring_sends(type_: CollectiveType, ranks: int) -> int:
    """Return the messages that a rank sends in a ring."""
    match type_:
        case CollectiveType.ALL_REDUCE:
            return 2 * (ranks - 1)
        case CollectiveType.ALL_TO_ALL:
            return ranks * (ranks - 1) // 2
        case _:
            return ranks - 1


class Sequence:
    """A phase that sends one message at a time."""

    __slots__ = (
        "_after", "_delay", "_endpoint", "_finished", "_insert_call", "_number", "_phase", "_ready_call",
        "_receive", "_received_call", "_reduces", "_rounds", "_send", "_send_call", "_sends",
    )  # fmt: skip

    def __init__(self, site: Site, phase: RingPhase, sends: int, finished: Callable[[], None]) -> None:
        self._finished = finished
        self._phase = phase
        self._endpoint = site.endpoint
        self._delay = site.endpoint.delay(phase.ring.group)
        self._sends = sends
        self._number = 0
        self._rounds = rounds(phase, 1)
        self._reduces = reductions(self._rounds, sends + 1)
        # Bound methods are kept, because a run creates millions of events.
        self._after = site.endpoint.events.after
        self._send, self._receive = site.transport.send, site.transport.receive
        self._ready_call = self._ready
        self._send_call = self._exchange
        self._received_call = self._received

    def start(self) -> None:
        """Start the phase."""
        self._insert()

    def keys(self, number: int) -> tuple[Key, Key]:
        """Return the keys of the message that a step sends, and of the one that the step receives."""
        raise NotImplementedError

    def reduction(self, number: int) -> int:
        """Return the ns of the reduction before a step."""
        raise NotImplementedError

    def _insert(self) -> None:
        if self._delay is not None:
            self._after(self._delay, self._ready_call, None)
            return
        insertion = self._rounds.insertion(self._number)
        self._endpoint.insert(insertion, self.keys(self._number)[0][3], None, self._send_call)

    def _ready(self, _: None) -> None:
        if self._reduces and self._reduces[self._number]:
            self._after(self.reduction(self._number), self._send_call, None)
        else:
            self._exchange(None)

    def _exchange(self, _: None) -> None:
        number = self._number
        if number == self._sends:
            self._finished()
            return
        sent, received = self.keys(number)
        self._send(sent)
        self._receive(received, self._received_call, None)

    def _received(self, _: None) -> None:
        self._number += 1
        self._insert()


class RingSequence(Sequence):
    """A ring: each rank receives from one neighbour and sends to the other."""

    __slots__ = ("_keys", "_reduction")

    def __init__(self, site: Site, tag: int, phase: RingPhase, finished: Callable[[], None]) -> None:
        ring = phase.ring
        ranks = len(ring.members)
        super().__init__(site, phase, ring_sends(phase.type, ranks), finished)
        size = phase.size if phase.type is CollectiveType.ALL_GATHER else phase.size // ranks
        step = 1 if phase.clockwise else -1
        self._keys = (tag, site.rank, ring.peer(step), size), (tag, ring.peer(-step), site.rank, size)
        self._reduction = site.endpoint.reduction(size)

    def keys(self, number: int) -> tuple[Key, Key]:
        """Return the keys of a step."""
        return self._keys

    def reduction(self, number: int) -> int:
        """Return the ns of the reduction before a step."""
        return self._reduction


class HalvingDoubling(Sequence):
    """Halving-doubling: in each step, a rank exchanges a message with a partner at another distance."""

    __slots__ = ("_distances", "_rank", "_sizes", "_tag")

    def __init__(self, site: Site, tag: int, phase: RingPhase, finished: Callable[[], None]) -> None:
        ring = phase.ring
        self._rank = site.rank
        self._tag = tag
        self._distances, self._sizes = halving_doubling_steps(
            phase.type, len(ring.members), ring.index, phase.size
        )
        super().__init__(site, phase, len(self._sizes) - 1, finished)

    def keys(self, number: int) -> tuple[Key, Key]:
        """Return the keys of a step."""
        partner = self._phase.ring.peer(self._distances[number])
        size = self._sizes[number]
        return (self._tag, self._rank, partner, size), (self._tag, partner, self._rank, size)

    def reduction(self, number: int) -> int:
        """Return the ns of the reduction before a step."""
        return self._endpoint.reduction(self._sizes[number])
