"""Rate limits of logins and of failed logins."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from convoy_operator.limits import TokenBucket

TRIES, TRIES_BURST = 0.5, 60
"""Logins per second of one address, successful ones included: 60 at once, then 30 a minute. Behind an Ingress
all readers may share one address."""
PER_ADDRESS, ADDRESS_BURST = 1 / 12, 5
"""Failed logins per second of one address: 5 at once, then 5 a minute."""
OVERALL, OVERALL_BURST = 1.0, 60
"""Failed logins per second of all addresses together. It bounds the TokenReviews that many addresses can
cause."""
MAX_ADDRESSES = 4096


@dataclass(frozen=True, slots=True)
class _Address:
    tries: TokenBucket
    failures: TokenBucket


class LoginLimit:
    """Token buckets: a login costs one token, a failed login a second one. Without tokens the login is
    refused.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._overall = TokenBucket(OVERALL, OVERALL_BURST, clock)
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def acquire(self, address: str) -> bool:
        """Reserve the tokens of a failed login. Return False if address or total is at the limit."""
        known = self._addresses.get(address)
        if known is None:
            known = self._addresses[address] = _Address(
                TokenBucket(TRIES, TRIES_BURST, self._clock),
                TokenBucket(PER_ADDRESS, ADDRESS_BURST, self._clock),
            )
            while len(self._addresses) > MAX_ADDRESSES:
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
        """Refund the tokens that only a failed login costs."""
        self._overall.refund()
        if address in self._addresses:
            self._addresses[address].failures.refund()
