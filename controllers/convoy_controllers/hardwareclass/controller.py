"""The controller of HardwareClasses. It deletes classes that no sweep has measured for a long time.

Sweeps create the classes and their values (healthsweep/controller.py).
"""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.controller import Controller
from convoy_controllers.healthsweep.classes import expires
from convoy_controllers.keys import Key
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_crds.hardwareclass import KIND, HardwareClass


def observe(reader: Reader, key: Key) -> HardwareClass | None:
    """Return the class; None if it does not exist."""
    return reader.get(KIND, key.name)


def plan(known: HardwareClass, now: datetime) -> Plan:
    """Delete the class if it has expired. Otherwise reconcile the class again at the time at which it
    expires.
    """
    end = expires(known)
    if end is None:
        return Plan()
    left = (end - now).total_seconds()
    return Plan(requeue_after=left) if left > 0 else Plan(delete_parent=True)


CONTROLLER = Controller(
    KIND,
    summary="Deletes hardware classes that no sweep has measured for a year.",
    observe=observe,
    plan=plan,
    validity=None,
    deletes=True,
    reflector=True,
)
