"""The seed of a block as a parameter of a TrainingJob's Engine.

With it, the runs of a block share their random choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy_crds.engine import Engine

PARAM = "seed"
"""Name of the parameter."""


def seeded(spec: Mapping[str, Any], engines: Mapping[str, Engine], seed: int) -> dict[str, Any]:
    """Return the spec of a TrainingJob with the seed of its block. It stays unchanged if its Engine has no
    such parameter, or if the spec sets the parameter itself.
    """
    found, named = dict(spec), spec.get("engine")
    engine = engines.get(str(named.get("name"))) if isinstance(named, Mapping) else None
    if engine is None or not isinstance(named, Mapping):
        return found
    params, value = named.get("params") or {}, _fitting(engine.spec.params_schema, seed)
    if value is None or not isinstance(params, Mapping) or PARAM in params:
        return found
    return {**found, "engine": {**named, "params": {**params, PARAM: value}}}


def _fitting(schema: Mapping[str, Any], seed: int) -> int | None:
    """Return the seed in the range that the schema of an Engine allows; None if the schema has none."""
    properties = schema.get("properties")
    own = properties.get(PARAM) if isinstance(properties, Mapping) else None
    if not isinstance(own, Mapping) or own.get("type") != "integer":
        return None
    least, most = own.get("minimum", 0), own.get("maximum", seed)
    if not isinstance(least, int) or not isinstance(most, int) or most < least:
        return None
    return least + seed % (most - least + 1)
