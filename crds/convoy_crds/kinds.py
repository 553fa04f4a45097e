"""The kinds of the API, in the order of the reference."""

from __future__ import annotations

from typing import Any

from convoy_crds import (
    checkpointstore,
    engine,
    guardpolicy,
    hardwareclass,
    healthsweep,
    nodehealth,
    trainingjob,
)
from convoy_crds.kind import Kind

KINDS: tuple[Kind[Any], ...] = (
    trainingjob.KIND,
    engine.KIND,
    checkpointstore.KIND,
    guardpolicy.KIND,
    nodehealth.KIND,
    healthsweep.KIND,
    hardwareclass.KIND,
)
