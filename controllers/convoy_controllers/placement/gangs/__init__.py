"""The gang backends: the scheduler features that start all pods of a gang or none."""

from __future__ import annotations

from convoy_controllers.placement.gangs import coscheduling, native, volcano
from convoy_controllers.placement.gangs.backend import Backend

BACKENDS: tuple[Backend, ...] = (native.BACKEND, coscheduling.BACKEND, volcano.BACKEND)
"""All backends, in the order in which `placement.gang: Auto` tries them."""
