"""An activator of a simulated ServingJob: it holds requests until it learns of a ready replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from convoy_controllers.simulate.serving.replica import Replica
from convoy_controllers.simulate.serving.requests import Cause, Outcome, Request

MAX_REQUESTS = 128
"""Number of requests that an activator has at most. It sheds the others."""
RETRY_SECONDS = 1.0
"""Seconds until another attempt after no replica has accepted a request."""


@dataclass(slots=True, eq=False, kw_only=True)
class Activator(Replica):
    """A pod that holds requests and passes them on. Its requests in `running` are those at a replica."""

    hold_seconds: float = 60.0
    """Seconds after which a request that waits is shed."""
    choose: Callable[[], Replica | None] = lambda: None
    """Function that returns the replica for the next request; None if the activator knows none."""
    on_first: Callable[[], None] = lambda: None
    """Function that is called when a request starts to wait and no other waits."""
    attempts: set[Request] = field(default_factory=set)
    """The requests that wait for another attempt."""

    def submit(self, request: Request) -> None:
        """Hold a request, or shed or refuse it."""
        if not self.loaded or self.ended or self.refusing:
            request.ended(request, Outcome.FAILED, Cause.REFUSED)
        elif self.requests >= MAX_REQUESTS:
            self.totals.shed += 1
            request.ended(request, Outcome.SHED, Cause.NONE)
        else:
            first = not self.waiting
            self.waiting.append(request)
            self.kernel.after(self.hold_seconds, lambda: self._late(request))
            self.release()
            if first and self.waiting:
                self.on_first()

    def release(self) -> None:
        """Pass the requests that wait on, the oldest first, as far as replicas are known."""
        if self.hung_since or self.ended:
            return
        for request in [one for one in self.waiting if one not in self.attempts]:
            target = self.choose()
            if target is None:
                return
            self.waiting.remove(request)
            self.running[request] = None
            target.submit(
                replace(request, ended=lambda *end, request=request: self._ended(request, *end[1:]))
            )

    def _ended(self, request: Request, outcome: Outcome, cause: Cause) -> None:
        if request not in self.running:
            return  # The activator has already ended.
        del self.running[request]
        if outcome is Outcome.SHED or cause is Cause.REFUSED:
            # No replica has accepted the request.
            self.waiting.appendleft(request)
            self.attempts.add(request)
            self.kernel.after(RETRY_SECONDS, lambda: self._again(request))
            return
        request.ended(request, outcome, cause)
        self._check_idle()

    def _again(self, request: Request) -> None:
        self.attempts.discard(request)
        self.release()

    def _late(self, request: Request) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
            self.attempts.discard(request)
            self.totals.shed += 1
            request.ended(request, Outcome.SHED, Cause.NONE)
            self._check_idle()
