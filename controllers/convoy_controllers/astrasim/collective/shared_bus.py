"""The bus between a processor and its memory, by the LogGP model.

A bus has two sides, and each side carries out its transfers in turn. The processor's side has a second,
faster bus to the memory, through which data passes before and after a transfer. After a side has sent more
than eight transfers in a row, the other side sends first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from convoy_controllers.astrasim.clock import Clock, RankEvents
from convoy_controllers.astrasim.collective.insertions import Insertion
from convoy_controllers.astrasim.parameters import SharedBus

MEMORY_GAP_PER_BYTE = 0.0038
"""ns per byte of the processor's second bus."""
MOST_IN_A_ROW = 8


class _State(Enum):
    FREE = "Free"
    SENDING = "Sending"
    RECEIVING = "Receiving"


@dataclass(slots=True)
class _Transfer:
    size: int
    reduced: bool
    """True if the receiving side has still to reduce the data."""
    sent_back: bool
    """True if the receiving side has still to send the data back."""
    done: Callable[[Any], None]


class _Side:
    """One side of a bus."""

    def __init__(self, clock: Clock, events: RankEvents, bus: SharedBus) -> None:
        self._clock = clock
        self._events = events
        self._bus = bus
        self.partner: _Side = self
        self.memory: _Bus | None = None
        """The second bus, on the processor's side."""
        self._state = self._previous = _State.FREE
        self._last = 0
        """Time of the end of the last transfer."""
        self._in_a_row = 0
        self._waiting: deque[_Transfer] = deque()
        self._receiving: deque[_Transfer] = deque()
        self._reducing: deque[_Transfer] = deque()
        self._reduces = False

    def request(self, transfer: _Transfer) -> None:
        """Transfer data to the other side."""
        if self.memory is not None:
            self.memory.to_processor(transfer.size, lambda _: self._queue(transfer))
            return
        self._waiting.append(transfer)
        self._next()

    def _queue(self, transfer: _Transfer) -> None:
        self._waiting.append(transfer)
        self._next()

    def _next(self) -> None:
        """Start the next transfer if the side is free, or let the other side go first."""
        if self._state is not _State.FREE or not self._waiting:
            return
        partner = self.partner
        if self._in_a_row > MOST_IN_A_ROW and partner._waiting and partner._in_a_row <= MOST_IN_A_ROW:
            partner._next()
            return
        offset = self._bus.overhead
        if self._previous is _State.SENDING:
            since = self._clock.now - self._last
            if offset + since <= self._bus.gap:
                offset = self._bus.gap - since
        transfer = self._waiting.popleft()
        partner._receive(transfer, offset)
        self._state = _State.SENDING
        self._events.after(int(offset + self._bus.gap_per_byte * (transfer.size - 1)), self._sent, None)

    def _receive(self, transfer: _Transfer, offset: int) -> None:
        self._receiving.append(transfer)
        self._previous, self._state = self._state, _State.RECEIVING
        bus = self._bus
        time = offset + (transfer.size - 1) * bus.gap_per_byte + bus.latency + bus.overhead
        self._events.after(int(time), self._received, None)
        self._in_a_row = 0

    def _sent(self, _: None) -> None:
        self._last = self._clock.now
        self._previous, self._state = self._state, _State.FREE
        self._in_a_row += 1
        self._next()

    def _received(self, _: None) -> None:
        self._last = self._clock.now
        self._previous = self._state
        if len(self._receiving) < 2:
            self._state = _State.FREE
        transfer = self._receiving.popleft()
        if transfer.reduced:
            transfer.reduced = False
            if self.memory is not None:
                self.memory.there_and_back(transfer.size, lambda _: self._queue_reduction(transfer))
            else:
                self._reducing.append(transfer)
            self._reduce()
        else:
            self._send_back_or_end(transfer)
        self._next()

    def _queue_reduction(self, transfer: _Transfer) -> None:
        self._reducing.append(transfer)
        self._reduce()
        self._next()

    def _reduce(self) -> None:
        """Start the next reduction if none runs."""
        if self._reduces or not self._reducing:
            return
        self._reduces = True
        time = self._reducing[0].size // 100 * self._bus.reduction_delay + 50
        self._events.after(time, self._reduced, None)

    def _reduced(self, _: None) -> None:
        self._reduces = False
        self._send_back_or_end(self._reducing.popleft())
        self._reduce()
        self._next()

    def _send_back_or_end(self, transfer: _Transfer) -> None:
        if transfer.sent_back:
            transfer.sent_back = False
            if self.memory is not None:
                self.memory.there_and_back(transfer.size, lambda _: self._queue(transfer))
            else:
                self._waiting.append(transfer)
        elif self.memory is not None:
            self.memory.to_memory(transfer.size, lambda _: self._end(transfer))
        else:
            transfer.done(None)

    def _end(self, transfer: _Transfer) -> None:
        transfer.done(None)
        self._next()


class _Bus:
    """Two sides that face each other."""

    def __init__(self, clock: Clock, events: RankEvents, bus: SharedBus) -> None:
        self.processor = _Side(clock, events, bus)
        self.other = _Side(clock, events, bus)
        self.processor.partner, self.other.partner = self.other, self.processor

    def to_processor(self, size: int, done: Callable[[Any], None]) -> None:
        """Transfer data to the processor's side."""
        self.other.request(_Transfer(size, False, False, done))

    def to_memory(self, size: int, done: Callable[[Any], None]) -> None:
        """Transfer data from the processor's side."""
        self.processor.request(_Transfer(size, False, False, done))

    def there_and_back(self, size: int, done: Callable[[Any], None]) -> None:
        """Transfer data from the processor's side and back to it."""
        self.processor.request(_Transfer(size, False, True, done))


class MemorySystem:
    """The shared bus of a rank, with the second bus on the processor's side."""

    def __init__(self, clock: Clock, events: RankEvents, bus: SharedBus) -> None:
        self._bus = _Bus(clock, events, bus)
        second = SharedBus(bus.latency, bus.overhead, bus.gap, MEMORY_GAP_PER_BYTE, bus.reduction_delay)
        self._bus.processor.memory = _Bus(clock, events, second)

    def transfer(self, insertion: Insertion, size: int, done: Callable[[Any], None]) -> None:
        """Carry data from the processor to the memory, or back, and reduce it if needed."""
        side = self._bus.processor if insertion.to_memory else self._bus.other
        side.request(_Transfer(size, insertion.reduced, insertion.sent_back, done))
