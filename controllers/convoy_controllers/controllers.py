"""The list of all controllers that the operator runs."""

from __future__ import annotations

from typing import Any

from convoy_controllers.checkpointstore import controller as checkpointstore
from convoy_controllers.controller import Controller
from convoy_controllers.engine import controller as engine
from convoy_controllers.experiment import controller as experiment
from convoy_controllers.guardpolicy import controller as guardpolicy
from convoy_controllers.hardwareclass import controller as hardwareclass
from convoy_controllers.healthsweep import controller as healthsweep
from convoy_controllers.nodehealth import controller as nodehealth
from convoy_controllers.nodemarks import controller as nodemarks
from convoy_controllers.servingjob import controller as servingjob
from convoy_controllers.spotpool import controller as spotpool
from convoy_controllers.trainingjob import controller as trainingjob

CONTROLLERS: tuple[Controller[Any], ...] = (
    trainingjob.CONTROLLER,
    servingjob.CONTROLLER,
    experiment.CONTROLLER,
    engine.CONTROLLER,
    checkpointstore.CONTROLLER,
    guardpolicy.CONTROLLER,
    nodehealth.CONTROLLER,
    nodemarks.CONTROLLER,
    healthsweep.CONTROLLER,
    hardwareclass.CONTROLLER,
    spotpool.CONTROLLER,
)
