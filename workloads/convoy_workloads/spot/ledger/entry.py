"""The record of one request in the ledger, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_workloads.spot.ledger.request import Commit, Lease, Request, RequestKind, RequestState, Result


@dataclass(slots=True)
class Entry:
    """A request with everything that the ledger knows about it."""

    request: Request
    state: RequestState = RequestState.PLANNED
    lease: Lease | None = None
    commit: Commit | None = None
    result: Result | None = None
    attempts: int = 0
    """Leases since the last progress."""

    def is_further(self, commit: Commit) -> bool:
        """Return True if the same weights made this progress and it is further than the saved one."""
        saved = self.commit
        return saved is None or (commit.version == saved.version and commit.step > saved.step)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values and arrays."""
        request, lease, commit, result = self.request, self.lease, self.commit, self.result
        return {
            "request": [
                request.job,
                request.iteration,
                request.prompt,
                request.seed,
                request.kind,
                request.version,
            ],
            "state": self.state,
            "lease": lease and [lease.worker, lease.incarnation, lease.number, lease.until],
            "commit": commit and [commit.version, commit.step, commit.state, commit.size],
            "result": result and [result.version, result.payload],
            "attempts": self.attempts,
        }


def entry_from_json(saved: Mapping[str, Any]) -> Entry:
    """Return the record that `Entry.to_json` described."""
    job, iteration, prompt, seed, kind, version = saved["request"]
    request = Request(job, iteration, prompt, seed, RequestKind(kind), version)
    commit = Commit(*saved["commit"]) if saved["commit"] else None
    lease = None
    if saved["lease"]:
        worker, incarnation, number, until = saved["lease"]
        lease = Lease(request, worker, incarnation, number, until, commit)
    return Entry(
        request,
        RequestState(saved["state"]),
        lease,
        commit,
        Result(*saved["result"]) if saved["result"] else None,
        saved["attempts"],
    )
