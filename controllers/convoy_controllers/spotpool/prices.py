"""The price schedule of a pool: the prices of its spec, or of the trace that its spec names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from convoy_controllers.spotpool.observed import TraceLookup
from convoy_crds.meta import seconds
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.spot_prices import PriceSchedule, Step
from convoy_crds.spotpool import Price
from convoy_crds.terms import ANNOTATION_PRICE_AS_OF

MAX_CLOCK_SKEW = 300.0
"""Seconds by which the time of reading may lie in the future. A later time is wrong."""


@dataclass(frozen=True, slots=True)
class PriceFinding:
    """The state of the price for the condition PriceKnown."""

    known: bool
    reason: Reason
    message: str


def schedule(price: Price, lookup: TraceLookup | None, now: float) -> PriceSchedule:
    """Return the price schedule of a pool, as known at `now`. If the time of reading is missing or in the
    future, the spot price is unknown.
    """
    read = _as_of(price, lookup)
    return PriceSchedule(
        on_demand=price.on_demand_per_hour,
        steps=_steps(price, lookup),
        as_of=read if read is not None and read <= now + MAX_CLOCK_SKEW else None,
        max_age=float(seconds(price.max_age)),
    )


def finding(price: Price, lookup: TraceLookup | None, now: float) -> PriceFinding:
    """Return whether the spot price of the moment `now` is known and, if not, what to do."""
    if (wrong := _wrong_trace(price, lookup)) is not None:
        return wrong
    found = schedule(price, lookup, now)
    facts = {"price": price.on_demand_per_hour}
    if found.as_of is None:
        path, fault = _wrong_time(price, lookup)
        reason = Reasons.PRICE_UNDATED
        return PriceFinding(False, reason, reason.format(path=path, fault=fault, **facts))
    if now >= found.known_until(now):
        hours = (now - found.as_of) / 3600
        reason = Reasons.PRICE_STALE
        return PriceFinding(False, reason, reason.format(hours=f"{hours:.1f}", age=price.max_age, **facts))
    value = found.spot(now, now)
    if value is None:
        return PriceFinding(False, Reasons.PRICE_GAP, Reasons.PRICE_GAP.format(path=_path(price), **facts))
    gap = lookup.trace.problem if lookup is not None else None
    remark = f"; earlier, {gap}, so the on-demand price counts there" if gap is not None else ""
    return PriceFinding(True, Reasons.PRICE_KNOWN, Reasons.PRICE_KNOWN.format(price=value, remark=remark))


def _wrong_trace(price: Price, lookup: TraceLookup | None) -> PriceFinding | None:
    trace, reason = price.spot.trace, Reasons.PRICE_TRACE_INVALID
    if trace is None or (lookup is not None and not lookup.error and lookup.trace.steps):
        return None
    why = "the operator has not read it yet" if lookup is None else lookup.error
    if lookup is None or lookup.error:
        reason = Reasons.PRICE_TRACE_MISSING
    else:
        why = str(lookup.trace.problem)
    return PriceFinding(
        False,
        reason,
        reason.format(name=trace.config_map, key=trace.key, why=why, price=price.on_demand_per_hour),
    )


def _steps(price: Price, lookup: TraceLookup | None) -> tuple[Step, ...]:
    if price.spot.per_hour is not None:
        return ((-math.inf, price.spot.per_hour),)
    if price.spot.steps is not None:
        return tuple(sorted((step.from_.timestamp(), step.per_hour) for step in price.spot.steps))
    return lookup.trace.steps if lookup is not None else ()


def _as_of(price: Price, lookup: TraceLookup | None) -> float | None:
    if lookup is not None and lookup.as_of is not None:
        return lookup.as_of
    return price.as_of.timestamp() if price.as_of is not None else None


def _wrong_time(price: Price, lookup: TraceLookup | None) -> tuple[str, str]:
    """Return the place of the time of reading, and its fault."""
    path, trace = "spec.price.asOf", price.spot.trace
    if trace is not None and lookup is not None and lookup.as_of is not None:
        path = f"the annotation {ANNOTATION_PRICE_AS_OF} of ConfigMap {trace.config_map!r}"
    found = _as_of(price, lookup)
    if found is None:
        return path, "is missing"
    return path, f"is in the future ({datetime.fromtimestamp(found, UTC):%Y-%m-%dT%H:%M:%SZ})"


def _path(price: Price) -> str:
    return "spec.price.spot.steps" if price.spot.steps is not None else "spec.price.spot.trace"
