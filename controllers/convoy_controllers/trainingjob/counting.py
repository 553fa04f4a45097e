"""From ledgers, which may move seconds between causes, to counters, which never go back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from convoy_crds.goodput import Cause, totals
from convoy_crds.trainingjob_status import Goodput

_UNSURE = (Cause.PRODUCTIVE, Cause.RECOMPUTE, Cause.FINISH)
"""Causes that may turn out to have been a hang since the last step."""


def settled(ledger: Goodput, stepped: datetime | None, now: datetime) -> dict[str, float]:
    """Seconds by cause, without those that may yet turn out to be another's: since its last step, ended at
    `stepped`, a job may hang, and what looks like training is then the time it took to find out.
    """
    until = min(now, stepped) if stepped is not None else ledger.since
    if ledger.cause == Cause.FINISH:
        until = ledger.since  # ranks may hang in their end, and some go on to a second loop
    return totals(ledger, until if ledger.cause in _UNSURE and until is not None else now)


def gains(counted: Mapping[str, float], ledger: Mapping[str, float]) -> dict[str, float]:
    """What to add to each cause, so that no more seconds are counted than there are.

    A cause that was counted beyond what the ledger has now keeps that. As many seconds are held back of the
    others, of each in proportion, until the ledger is past it.
    """
    fresh = {cause: max(0.0, seconds - counted.get(cause, 0.0)) for cause, seconds in ledger.items()}
    whole = sum(fresh.values())
    left = sum(ledger.values()) - sum(counted.values())
    share = min(1.0, max(0.0, left / whole)) if whole > 0 else 0.0
    return {cause: seconds * share for cause, seconds in fresh.items()}
