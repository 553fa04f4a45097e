"""Passes the commands of plans to the parts of the hub that send them to agents."""

from __future__ import annotations

from convoy_controllers.commands import CancelSweep, Command, InjectFault, UndoFault
from convoy_controllers.healthsweep.observed import Order
from convoy_operator.hub.assembly import Hub


def route(hub: Hub, command: Command) -> None:
    """Pass a command of a plan to the part of the hub that sends it to an agent."""
    match command:
        case Order():
            hub.sweeps.order(command)
        case CancelSweep():
            hub.sweeps.cancel(command.node, command.name)
        case InjectFault() | UndoFault():
            hub.faults.send(command)
        case _:
            hub.commands.send(command)
