"""How often a login may be tried, and how often it may fail."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from convoy_operator.limits import TokenBucket

TRIES, TRIES_BURST = 0.5, 60
"""Logins per second of one address, also those that succeed: sixty at once, then thirty a minute. Behind an
Ingress all readers may have one address."""
PER_ADDRESS, ADDRESS_BURST = 1 / 12, 5
"""Failures per second of one address: five at once, then five a minute."""
OVERALL, OVERALL_BURST = 1.0, 60
"""Failures per second of all together, so that many addresses cannot make the API server review tokens."""
MOST_ADDRESSES = 4096


@dataclass(frozen=True, slots=True)
class _Address:
    tries: TokenBucket
    failures: TokenBucket


class LoginLimit:
    """A login costs a token, a failure one more; without them nothing is tried."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._overall = TokenBucket(OVERALL, OVERALL_BURST, clock)
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def acquire(self, address: str) -> bool:
        """Takes what a failure of this address will cost; False when it is not there."""
        known = self._addresses.get(address)
        if known is None:
            known = self._addresses[address] = _Address(
                TokenBucket(TRIES, TRIES_BURST, self._clock),
                TokenBucket(PER_ADDRESS, ADDRESS_BURST, self._clock),
            )
            while len(self._addresses) > MOST_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        reserved = []
        for bucket in (known.tries, known.failures, self._overall):
            reserved.append(bucket)
            if bucket.reserve() > 0:
                for one in reserved:
                    one.refund()
                return False
        return True

    def refund_failure(self, address: str) -> None:
        """Gives back what only a failure costs."""
        self._overall.refund()
        if address in self._addresses:
            self._addresses[address].failures.refund()
