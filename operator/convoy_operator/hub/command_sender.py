"""Sends the commands of plans to agents."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from convoy_controllers.commands import Assign, DeliverModel, Endpoints, JobCommand, Shutdown
from convoy_operator.hub import messages
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.slot_tokens import SlotTokenIssuer
from convoy_operator.hub.stores import CheckpointStores

log = structlog.get_logger(__name__)


class CommandSender:
    """Sends each command to its agent. A command that a plan repeats within two seconds is sent only once."""

    def __init__(
        self, context: HubContext, registry: AgentRegistry, stores: CheckpointStores, tokens: SlotTokenIssuer
    ) -> None:
        self._metrics = context.metrics
        self._clock = context.clock
        self._registry = registry
        self._stores = stores
        self._tokens = tokens

    def send(self, command: JobCommand) -> None:
        """Send a command to its node's agent. Skip it if the agent is not connected or has just received
        the same command.
        """
        record = self._registry.get(command.node)
        if record is None or record.stream is None:
            self._metrics.commands_dropped.inc()
            log.info(
                "agent is not connected, its command is dropped until the next plan",
                node=command.node,
                command=type(command).__name__,
            )
            return
        if record.stream.repeats(_identity(command), self._clock()):
            return
        for store in _stores(command):
            self._stores.ensure(command.node, store)
        message = messages.command(command, self._registry.peer_address, self._tokens.sign)
        if isinstance(command, Assign):
            key = self._tokens.incarnation_key(command.job_uid, command.incarnation)
            message.assignment.key = key
            message.assignment.job_key = self._tokens.job_key(command.key_uid)
        self._registry.put(record.stream, message)


def _identity(command: JobCommand) -> tuple[str, ...]:
    """Return the part of a command that tells a repetition from another command."""
    incarnation = 0 if isinstance(command, Shutdown) else command.incarnation
    details = command.addresses if isinstance(command, Endpoints) else ()
    if isinstance(command, Assign) and command.trace:
        details = (f"trace {command.trace.recording}.{command.trace.attempt}",)
    return type(command).__name__, command.pod_uid, str(incarnation), *details


def _stores(command: JobCommand) -> Iterator[str]:
    """Yield the names of the stores that the agent needs for a command."""
    if isinstance(command, DeliverModel):
        yield command.source.store
    if isinstance(command, Assign) and command.memory and command.memory.store:
        yield command.memory.store.name
    if isinstance(command, Assign) and command.trace:
        yield command.trace.store
