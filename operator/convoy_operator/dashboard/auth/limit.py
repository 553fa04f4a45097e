"""How often a login may fail."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from convoy_operator.limits import TokenBucket

PER_ADDRESS, ADDRESS_BURST = 1 / 12, 5
"""Failures per second of one address: five at once, then five a minute."""
OVERALL, OVERALL_BURST = 1.0, 60
"""Failures per second of all together, so that many addresses cannot make the API server review tokens."""
MOST_ADDRESSES = 4096


class FailureLimit:
    """A failure costs a token; without one nothing is tried. What succeeds costs nothing."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._overall = TokenBucket(OVERALL, OVERALL_BURST, clock)
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()

    def begin(self, address: str) -> bool:
        """Takes the token that a failure of this address will cost; False when there is none."""
        bucket = self._addresses.get(address)
        if bucket is None:
            bucket = self._addresses[address] = TokenBucket(PER_ADDRESS, ADDRESS_BURST, self._clock)
            while len(self._addresses) > MOST_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        if bucket.reserve() > 0:
            bucket.refund()
            return False
        if self._overall.reserve() > 0:
            self._overall.refund()
            bucket.refund()
            return False
        return True

    def succeeded(self, address: str) -> None:
        """Gives the token back."""
        self._overall.refund()
        if address in self._addresses:
            self._addresses[address].refund()
