"""The controller of Engines: it decides whether an Engine can be used."""

from __future__ import annotations

from convoy_controllers.controller import Controller
from convoy_controllers.engine.plan import plan
from convoy_controllers.keys import Key
from convoy_controllers.reader import Reader
from convoy_crds.engine import KIND, Engine


def observe(reader: Reader, key: Key) -> Engine | None:
    """Return the Engine."""
    return reader.get(KIND, key.name)


CONTROLLER = Controller(KIND, summary="Decides whether an Engine can be used.", observe=observe, plan=plan)
