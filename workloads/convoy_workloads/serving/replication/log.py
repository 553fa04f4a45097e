"""The operations that a replica knows, as pure state.

All replicas that know the same operations have the same winner of each key, in whatever order, how often and
by whichever way the operations came.

For each origin, the operations up to a sequence are known: that is the version vector. The newest of them are
retained for replicas that lack them. Of older ones only the winners remain, in the engine. A replica that
lacks more than what is retained gets the winners that it lacks (`lacking`): a superseded operation changes
nothing.

An operation that arrives before its predecessors waits for them and does not count as known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from convoy_workloads.serving.replication.operation import Operation, Stamp, Vector

MAX_EARLY = 1024
"""Maximum number of operations that wait for their predecessors. Further ones are dropped, and sent again."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The retained operations that another replica lacks."""

    operations: list[Operation]
    more: bool = False
    """True if the other replica lacks more retained operations than `operations` has room for."""
    trimmed: bool = False
    """True if the other replica also lacks operations that are not retained."""


@dataclass(slots=True)
class _History:
    """The operations of one origin: those after `floor` are retained, and known up to `top`."""

    floor: int = 0
    retained: deque[Operation] = field(default_factory=deque)

    @property
    def top(self) -> int:
        return self.floor + len(self.retained)

    def after(self, sequence: int) -> Iterator[Operation]:
        """Yield the retained operations after a sequence."""
        for position in range(max(0, sequence - self.floor), len(self.retained)):
            yield self.retained[position]


class OperationLog:
    """The operations that a replica knows."""

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        """`most_bytes`: maximum size of the retained operations, and of those that wait for predecessors."""
        self._most_bytes = most_bytes
        self._histories: dict[bytes, _History] = {}
        self._stamps: dict[bytes, Stamp] = {}
        self._early: dict[tuple[bytes, int], Operation] = {}
        self._early_bytes = 0
        self._order: deque[bytes] = deque()
        """Origins of the retained operations, the oldest arrival first. It may name trimmed ones too."""
        self.retained_bytes = 0
        self.clock = 0
        """The largest clock of all known operations."""

    @property
    def vector(self) -> Vector:
        """Return the version vector."""
        return {origin: one.top for origin, one in self._histories.items()}

    @property
    def early(self) -> int:
        """Return the number of operations that wait for their predecessors."""
        return len(self._early)

    @property
    def retained(self) -> int:
        """Return the number of retained operations."""
        return sum(len(one.retained) for one in self._histories.values())

    def known(self, origin: bytes) -> int:
        """Return the sequence up to which an origin's operations are known."""
        found = self._histories.get(origin)
        return found.top if found else 0

    def covers(self, vector: Mapping[bytes, int]) -> bool:
        """Return True if all operations of a version vector are known."""
        return all(self.known(origin) >= sequence for origin, sequence in vector.items())

    def stamp(self, key: bytes) -> Stamp | None:
        """Return the stamp of a key's winner; None if no operation on the key is known."""
        return self._stamps.get(key)

    def stamps(self) -> dict[bytes, Stamp]:
        """Return the stamps of all keys' winners."""
        return dict(self._stamps)

    def merge(self, operations: Iterable[Operation]) -> list[Operation]:
        """Add operations. Return those that have won their key, in an order in which they may be applied."""
        won: list[Operation] = []
        for one in operations:
            self._accept(one, won)
        self._bound()
        return won

    def merge_winners(self, operations: Iterable[Operation]) -> list[Operation]:
        """Add winners of another replica's keys, whatever comes before them. Return those that have won here.

        They do not count as known before `adopt`.
        """
        return [one for one in operations if self._wins(one)]

    def adopt(
        self, vector: Mapping[bytes, int], stamps: Mapping[bytes, Stamp] | None = None
    ) -> list[Operation]:
        """Record that the state of another replica was taken over: all operations of its version vector are
        known. `stamps`: the stamps in that state, if its winners did not come by `merge_winners`.

        Return the operations that have waited and have won now.
        """
        for key, stamp in (stamps or {}).items():
            found = self._stamps.get(key)
            self.clock = max(self.clock, stamp.clock)
            if found is None or found.rank < stamp.rank:
                self._stamps[key] = stamp
        won: list[Operation] = []
        for origin, sequence in vector.items():
            history = self._histories.setdefault(origin, _History())
            if history.top < sequence:
                self.retained_bytes -= sum(one.size for one in history.retained)
                self._histories[origin] = _History(sequence)
        for origin in {origin for origin, _ in self._early}:
            self._join_early(origin, won)
        return won

    def missing_for(self, vector: Mapping[bytes, int], most_bytes: int) -> Missing:
        """Return the retained operations that a replica with this version vector lacks, in the order of each
        origin, at most about `most_bytes`. The origin with the oldest one comes first, so that none waits
        for ever behind others that write all the time.
        """
        found: list[Operation] = []
        size, trimmed = 0, False
        lacking: list[tuple[int, bytes, int]] = []
        for origin, history in self._histories.items():
            theirs = vector.get(origin, 0)
            if theirs >= history.top:
                continue
            if theirs < history.floor:
                trimmed = True
                continue
            lacking.append((next(history.after(theirs)).stamp.clock, origin, theirs))
        for _, origin, theirs in sorted(lacking):
            for one in self._histories[origin].after(theirs):
                if found and size + one.size > most_bytes:
                    return Missing(found, True, trimmed)
                found.append(one)
                size += one.size
        return Missing(found, False, trimmed)

    def after(self, origin: bytes, sequence: int, most_bytes: int) -> Missing:
        """Return the retained operations of one origin after a sequence."""
        history = self._histories.get(origin)
        if history is None or sequence >= history.top:
            return Missing([])
        if sequence < history.floor:
            return Missing([], trimmed=True)
        return self._first(history.after(sequence), most_bytes)

    @staticmethod
    def _first(operations: Iterable[Operation], most_bytes: int) -> Missing:
        found: list[Operation] = []
        size = 0
        for one in operations:
            if found and size + one.size > most_bytes:
                return Missing(found, True)
            found.append(one)
            size += one.size
        return Missing(found)

    def lacking(self, vector: Mapping[bytes, int]) -> list[bytes]:
        """Return the keys whose winners a replica with this version vector lacks."""
        return [key for key, one in self._stamps.items() if one.sequence > vector.get(one.origin, 0)]

    def trim(self, vector: Mapping[bytes, int]) -> None:
        """Drop the retained operations that all peers know. `vector`: the least of their version vectors."""
        for origin, history in self._histories.items():
            least = vector.get(origin, 0)
            while history.retained and history.floor < least:
                self._drop_oldest(history)

    def _accept(self, one: Operation, won: list[Operation]) -> None:
        origin, sequence = one.stamp.origin, one.stamp.sequence
        known = self.known(origin)
        if sequence <= known:
            return
        if sequence > known + 1:
            place = (origin, sequence)
            fits = len(self._early) < MAX_EARLY and self._early_bytes + one.size <= self._most_bytes
            if fits and place not in self._early:
                self._early[place] = one
                self._early_bytes += one.size
            return
        self._append(one, won)
        self._join_early(origin, won)

    def _join_early(self, origin: bytes, won: list[Operation]) -> None:
        if not self._early:
            return
        while (one := self._early.pop((origin, self.known(origin) + 1), None)) is not None:
            self._early_bytes -= one.size
            self._append(one, won)
        known = self.known(origin)
        for key in [key for key in self._early if key[0] == origin and key[1] <= known]:
            self._early_bytes -= self._early.pop(key).size

    def _append(self, one: Operation, won: list[Operation]) -> None:
        origin = one.stamp.origin
        self._histories.setdefault(origin, _History()).retained.append(one)
        self._order.append(origin)
        self.retained_bytes += one.size
        if self._wins(one):
            won.append(one)

    def _wins(self, one: Operation) -> bool:
        self.clock = max(self.clock, one.stamp.clock)
        found = self._stamps.get(one.key)
        if found is not None and found.rank >= one.stamp.rank:
            return False
        self._stamps[one.key] = one.stamp
        return True

    def _bound(self) -> None:
        while self.retained_bytes > self._most_bytes and self._order:
            history = self._histories[self._order.popleft()]
            if history.retained:
                self._drop_oldest(history)
        if len(self._order) > 2 * self.retained + MAX_EARLY:
            self._order = deque(origin for origin, one in self._histories.items() for _ in one.retained)

    def _drop_oldest(self, history: _History) -> None:
        self.retained_bytes -= history.retained.popleft().size
        history.floor += 1
