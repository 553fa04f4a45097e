"""All kinds of the API, in the order of the reference pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy_crds import (
    checkpointstore,
    engine,
    experiment,
    guardpolicy,
    hardwareclass,
    healthsweep,
    nodehealth,
    servingjob,
    spotpool,
    trainingjob,
)
from convoy_crds.kind import Kind

KINDS: tuple[Kind[Any], ...] = (
    trainingjob.KIND,
    servingjob.KIND,
    experiment.KIND,
    engine.KIND,
    checkpointstore.KIND,
    guardpolicy.KIND,
    nodehealth.KIND,
    healthsweep.KIND,
    hardwareclass.KIND,
    spotpool.KIND,
)


def by_name(kinds: Sequence[Kind[Any]] = KINDS) -> dict[str, Kind[Any]]:
    """Return the kinds by name, such as `TrainingJob`."""
    return {kind.name: kind for kind in kinds}
