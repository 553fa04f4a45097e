"""The price schedule of a pool: the prices of its spec, or of the trace that its spec names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convoy_controllers.spotpool.observed import TraceLookup
from convoy_crds.meta import seconds
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.spot_prices import PriceSchedule, Step
from convoy_crds.spotpool import Price


@dataclass(frozen=True, slots=True)
class PriceFinding:
    """The state of the price for the condition PriceKnown."""

    known: bool
    reason: Reason
    message: str


def schedule(price: Price, lookup: TraceLookup | None) -> PriceSchedule:
    """Return the price schedule of a pool."""
    return PriceSchedule(
        on_demand=price.on_demand_per_hour,
        steps=_steps(price, lookup),
        as_of=_as_of(price, lookup),
        max_age=float(seconds(price.max_age)),
    )


def finding(price: Price, lookup: TraceLookup | None, now: float) -> PriceFinding:
    """Return whether the spot price of the moment `now` is known and, if not, what to do."""
    if (wrong := _wrong_trace(price, lookup)) is not None:
        return wrong
    found = schedule(price, lookup)
    facts = {"price": price.on_demand_per_hour}
    if found.as_of is None:
        return PriceFinding(False, Reasons.PRICE_UNDATED, Reasons.PRICE_UNDATED.format(**facts))
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


def _path(price: Price) -> str:
    return "spec.price.spot.steps" if price.spot.steps is not None else "spec.price.spot.trace"
