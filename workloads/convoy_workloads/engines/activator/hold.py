"""The requests that an activator holds until a replica is ready.

A place belongs to a request from its arrival to the end of its response, so the number of places bounds the
requests and their memory. Requests get a replica in the order of their arrival. Everything runs on one event
loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


class Full(Exception):
    """Raised if all places are taken."""


class Closed(Exception):
    """Raised if the activator ends while a request waits."""


@dataclass(slots=True, eq=False)
class Place:
    """A request that waits for a replica or is proxied to one."""

    number: int
    """Position in the order of arrival."""
    waiting: bool = True
    """True until a replica accepts the request."""
    failures: int = 0
    """Number of attempts that no replica accepted."""
    avoided: str = ""
    """Address of the replica that refused the last attempt; empty if none did."""
    _wake: asyncio.Future[None] | None = field(default=None, repr=False)


class Hold:
    """The places, and the addresses of the ready replicas."""

    def __init__(self, most: int) -> None:
        """`most`: maximum number of requests that wait or are proxied."""
        self.most = most
        self.idle = asyncio.Event()
        """Set while no request has a place."""
        self.idle.set()
        self.on_first: Callable[[], None] = lambda: None
        """Function that is called when a request starts to wait, none else waits, and no replica is ready."""
        self._addresses: tuple[str, ...] = ()
        self._places: dict[int, Place] = {}
        """The places in the order of arrival, by number."""
        self._load: dict[str, int] = {}
        """Number of requests that each replica has from here."""
        self._numbers = itertools.count()
        self._closed = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of the ready replicas, as `host:port`."""
        return self._addresses

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait for a replica. Any thread may call this."""
        # The copy is made at once. Requests that arrive meanwhile would end a loop over the places.
        return sum(one.waiting for one in tuple(self._places.values()))

    @property
    def proxied(self) -> int:
        """Return the number of requests that a replica handles."""
        return len(self._places) - self.waiting

    def enter(self) -> Place:
        """Return a place for a request. The caller must call `leave` afterwards, whatever happens. Raises
        Full if all places are taken.
        """
        if len(self._places) >= self.most:
            raise Full
        first = not self._addresses and not self.waiting
        place = Place(next(self._numbers))
        self._places[place.number] = place
        self.idle.clear()
        if first:
            self.on_first()
        return place

    def leave(self, place: Place) -> None:
        """Give a place back."""
        if self._places.pop(place.number, None) is not None and not self._places:
            self.idle.set()

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Replace the addresses of the ready replicas. Release the requests that wait, the oldest first."""
        self._addresses = tuple(addresses)
        if self._addresses:
            self._wake_all()

    def close(self) -> None:
        """Let every request that waits fail with Closed."""
        self._closed = True
        self._wake_all()

    async def address(self, place: Place) -> str:
        """Wait until a replica is ready, and return the address of the one with the fewest requests from
        here. Raises Closed if the activator ends meanwhile.
        """
        while not self._closed:
            if found := self._best(place):
                place.waiting = False
                self._load[found] = self._load.get(found, 0) + 1
                return found
            await self._changed(place)
        raise Closed

    async def pause(self, place: Place, seconds: float) -> None:
        """Wait until the ready replicas change, at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed(place)
        except TimeoutError:
            pass

    def refused(self, place: Place, address: str) -> None:
        """Record that a replica did not accept a request, which waits again in its old position."""
        place.waiting = True
        place.failures += 1
        place.avoided = address

    def ended(self, address: str) -> None:
        """Record that a replica has no longer a request that it got from here."""
        left = self._load.get(address, 0) - 1
        if left > 0:
            self._load[address] = left
        else:
            self._load.pop(address, None)

    def _best(self, place: Place) -> str:
        """Return the ready replica with the fewest requests; empty if none is ready. The replica that refused
        the last attempt is chosen only if there is no other.
        """
        others = [one for one in self._addresses if one != place.avoided]
        return min(others or self._addresses, key=lambda one: self._load.get(one, 0), default="")

    async def _changed(self, place: Place) -> None:
        place._wake = asyncio.get_running_loop().create_future()
        try:
            await place._wake
        finally:
            place._wake = None

    def _wake_all(self) -> None:
        for _, place in sorted(self._places.items()):
            if place._wake is not None and not place._wake.done():
                place._wake.set_result(None)
