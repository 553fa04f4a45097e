"""One replica of a simulated ServingJob: a queue in front of a number of slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from convoy_controllers.simulate.kernel import Kernel, Timer
from convoy_controllers.simulate.serving.figures import ReplicaTotals
from convoy_controllers.simulate.serving.program import ServingProgram
from convoy_controllers.simulate.serving.requests import Cause, Outcome, Request


@dataclass(slots=True, eq=False, kw_only=True)
class Replica:
    """The ranks of one incarnation of a replica. They serve together, or not at all."""

    kernel: Kernel
    job: str
    role: str
    incarnation: int
    size: int
    """Number of ranks."""
    program: ServingProgram
    broken: bool
    """True if the replica's revision does not work."""
    drain_seconds: float
    head: str = ""
    """Uid of the pod in slot 0, which receives the requests."""
    members: set[str] = field(default_factory=set)
    """Uids of the pods whose ranks run."""
    loaded: bool = False
    loading_since: float = 0.0
    hung_since: float = 0.0
    """Unix time in seconds at which a rank hung; 0 if none hangs."""
    ended: bool = False
    """True if a rank has ended. The others can then compute nothing more."""
    refusing: bool = False
    """True if the replica accepts no further requests."""
    idle: Callable[[], None] | None = None
    """Function that is called when a replica that drains has no request left."""
    totals: ReplicaTotals = field(default_factory=ReplicaTotals)
    running: dict[Request, Timer | None] = field(default_factory=dict)
    """The requests in the slots, with the timers of their ends."""
    waiting: deque[Request] = field(default_factory=deque)

    @property
    def whole(self) -> bool:
        """Return True if all ranks run."""
        return len(self.members) == self.size

    @property
    def serves(self) -> bool:
        """Return True if the replica accepts and computes requests."""
        return self.loaded and not self.ended and not self.refusing and not self.hung_since

    @property
    def requests(self) -> int:
        """Return the number of requests that the replica has now."""
        return len(self.running) + len(self.waiting)

    def submit(self, request: Request) -> None:
        """Accept, queue, shed or refuse a request."""
        if not self.loaded or self.ended or self.refusing:
            request.ended(request, Outcome.FAILED, Cause.REFUSED)
        elif len(self.running) < self.program.slots:
            self._compute(request)
        elif len(self.waiting) < self.program.queue:
            self.waiting.append(request)
        else:
            self.totals.shed += 1
            request.ended(request, Outcome.SHED, Cause.NONE)

    def _compute(self, request: Request) -> None:
        hung = bool(self.hung_since)
        self.running[request] = (
            None if hung else self.kernel.after(request.seconds, lambda: self._finish(request))
        )

    def _finish(self, request: Request) -> None:
        del self.running[request]
        self.totals.record(self.kernel.now - request.at)
        request.ended(request, Outcome.OK, Cause.NONE)
        if self.waiting:
            self._compute(self.waiting.popleft())
        self._check_idle()

    def hang(self) -> None:
        """Stop all computations for good. The replica's front still accepts requests."""
        self.hung_since = self.hung_since or self.kernel.now
        for request, timer in self.running.items():
            if timer is not None:
                timer.cancel()
            self.running[request] = None

    def abort(self, outcome: Outcome, cause: Cause = Cause.NONE) -> None:
        """End all requests that the replica has now."""
        left, waiting = dict(self.running), list(self.waiting)
        self.running.clear()
        self.waiting.clear()
        for request, timer in left.items():
            if timer is not None:
                timer.cancel()
            request.ended(request, outcome, cause)
        for request in waiting:
            request.ended(request, outcome, cause)
        self._check_idle()

    def refuse(self) -> None:
        """Accept no further requests."""
        self.refusing = True
        self._check_idle()

    def _check_idle(self) -> None:
        if self.refusing and not self.requests and self.idle is not None:
            idle, self.idle = self.idle, None
            idle()
