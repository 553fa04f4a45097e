"""By what right other agents ask for a job's memory."""

from __future__ import annotations

from typing import Any

import grpc

from convoy_agents.enrol import Enrolment
from convoy_agents.wire import slot_tokens
from convoy_agents.wire.callers import agent_of
from convoy_agents.wire.slot_tokens import InvalidSlotToken, SlotToken


class SlotTokenCheck:
    """As callers show them to this agent."""

    def __init__(self, enrolment: Enrolment) -> None:
        self._enrolment = enrolment

    async def require(self, token: str, job_uid: str, context: Any) -> SlotToken:
        """The caller's for a job, in whichever incarnation. Aborts UNAUTHENTICATED for who is no agent,
        PERMISSION_DENIED for one whose node has no slot by it, UNAVAILABLE while this agent has no identity
        itself.
        """
        node = await agent_of(context)
        identity = self._enrolment.current
        authority = identity.authority if identity else b""
        if not authority:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this agent's own certificate has run out")
        try:
            slot_token = slot_tokens.read(token, authority)
        except InvalidSlotToken as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        if (slot_token.job_uid, slot_token.node) != (job_uid, node):
            text = f"the slot token is not of job {job_uid}, or not of node {node}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        return slot_token
