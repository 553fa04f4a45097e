"""Reads the price traces of SpotPools from ConfigMaps in the operator's namespace.

The operator reads a ConfigMap by its name and never lists or watches ConfigMaps, so it needs no right to see
others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from pydantic import ValidationError

from convoy_controllers.cached import CachedObject
from convoy_controllers.resources import CONFIG_MAPS
from convoy_controllers.spotpool.observed import TraceLookup
from convoy_crds.spot_prices import parse_trace
from convoy_crds.spotpool import KIND, SpotPool, TraceRef
from convoy_crds.terms import ANNOTATION_PRICE_AS_OF
from convoy_operator import errors
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.gateway import ApiGateway

log = structlog.get_logger(__name__)

REREAD_SECONDS = 30.0
"""Seconds for which a trace counts before it is read again."""


@dataclass(frozen=True, slots=True)
class _Read:
    """The last read of a trace."""

    ref: TraceRef
    at: float
    """Monotonic time of the read."""
    lookup: TraceLookup
    version: str = ""
    """resourceVersion of the ConfigMap; empty if it could not be read."""


class PriceTraces:
    """The price traces of all SpotPools. All methods must be called from the event loop."""

    def __init__(
        self,
        cache: ClusterCache,
        gateway: ApiGateway,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`namespace` is the operator's namespace, which contains the ConfigMaps."""
        self._gateway = gateway
        self._namespace = namespace
        self._clock = clock
        self._known: dict[str, _Read] = {}
        """The last read by name of the pool."""
        cache.objects(KIND).listen(self._on_removed)

    async def resolve(self, parent: CachedObject) -> None:
        """Read the trace of a pool if the spec names another one, or if the last read is too old."""
        try:
            ref = SpotPool.model_validate(parent.raw).spec.price.spot.trace
        except ValidationError:
            ref = None
        if ref is None:
            self._known.pop(parent.name, None)
            return
        known = self._known.get(parent.name)
        if known is not None and known.ref != ref:
            known = None
        if known is None or self._clock() - known.at >= REREAD_SECONDS:
            self._known[parent.name] = await self._read(ref, known)

    def find(self, pool: str) -> TraceLookup | None:
        """Return the trace of a pool; None if it has none, or before `resolve`."""
        known = self._known.get(pool)
        return known.lookup if known is not None else None

    async def _read(self, ref: TraceRef, last: _Read | None) -> _Read:
        """Return the trace. If the API server fails, the last trace stays. An unchanged trace is not parsed
        again, because that blocks the event loop.
        """
        now = self._clock()
        try:
            raw = await self._gateway.get(CONFIG_MAPS, self._namespace, ref.config_map)
        except errors.NotFound:
            return _Read(ref, now, TraceLookup(error="the ConfigMap does not exist; create it"))
        except errors.Forbidden:
            why = "the operator may not read the ConfigMap; list it in the chart's operator.priceConfigMaps"
            return _Read(ref, now, TraceLookup(error=why))
        except errors.ApiError as error:
            log.warning("price trace not read, will retry", config_map=ref.config_map, why=str(error))
            kept = last.lookup if last is not None else TraceLookup(error=f"the API server failed: {error}")
            return _Read(ref, now, kept, last.version if last is not None else "")
        version = str(raw["metadata"].get("resourceVersion", ""))
        if last is not None and version and version == last.version:
            return _Read(ref, now, last.lookup, version)
        return _Read(ref, now, _lookup(ref, raw), version)

    def _on_removed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if after is None and before is not None:
            self._known.pop(before.name, None)


def _lookup(ref: TraceRef, raw: Any) -> TraceLookup:
    """Return the trace in a ConfigMap."""
    text = (raw.get("data") or {}).get(ref.key)
    if not isinstance(text, str):
        return TraceLookup(error=f"the ConfigMap has no key {ref.key!r}; add it")
    found = parse_trace(text)
    if found.problem is not None:
        log.warning("price trace has a fault", config_map=ref.config_map, fault=str(found.problem))
    return TraceLookup(found, as_of=_as_of(raw))


def _as_of(raw: Any) -> float | None:
    text = (raw["metadata"].get("annotations") or {}).get(ANNOTATION_PRICE_AS_OF, "")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None
