"""Rate limits of logins and of failed logins."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from convoy_operator.limits import TokenBucket

TRIES, TRIES_BURST = 0.5, 60
"""Rate limit and burst of logins from one address, including successful ones: 60 at once, then 30 a minute.
The limit is high because all users behind an Ingress may share one address.
"""
PER_ADDRESS, ADDRESS_BURST = 1 / 12, 5
"""Rate limit and burst of failed logins from one address: 5 at once, then 5 a minute."""
OVERALL, OVERALL_BURST = 1.0, 60
"""Rate limit and burst of failed logins from all addresses together: 60 at once, then 1 a second. This limits
the TokenReviews that many addresses together can cause.
"""
MAX_ADDRESSES = 4096


@dataclass(frozen=True, slots=True)
class _Address:
    tries: TokenBucket
    failures: TokenBucket


class LoginLimit:
    """Limits logins by token buckets. Each attempt takes a token from a bucket of its address. A failed
    attempt also takes one from a second bucket of its address and one from a common bucket. If one of
    these buckets is empty, the login is refused.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._overall = TokenBucket(OVERALL, OVERALL_BURST, clock)
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def acquire(self, address: str) -> bool:
        """Before a login, take a token from all three buckets, as for a failed login. Return False, and
        take nothing, if one of the buckets is empty.
        """
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
        """After a successful login, put back the two tokens that only a failed login costs."""
        self._overall.refund()
        if address in self._addresses:
            self._addresses[address].failures.refund()
