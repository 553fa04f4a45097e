"""The check of the slot tokens with which other agents access a job's memory."""

from __future__ import annotations

from typing import Any

import grpc

from convoy_agents.enrol import Enrolment
from convoy_agents.wire import slot_tokens
from convoy_agents.wire.callers import agent_of
from convoy_agents.wire.slot_tokens import InvalidSlotToken, SlotToken
from convoy_controllers.checkpoint.replica_state import may_read


class SlotTokenCheck:
    """Checks the slot tokens of callers."""

    def __init__(self, enrolment: Enrolment) -> None:
        self._enrolment = enrolment

    async def require(self, token: str, job_uid: str, context: Any, *, reads: bool = False) -> SlotToken:
        """Return the caller's slot token if it is valid for the job, in any incarnation. Otherwise abort
        the call. `reads`: True if the call only reads. A replica of a ServingJob may also read the states of
        the other replicas of its role and revision.

        The status is UNAUTHENTICATED if the caller is no agent. It is PERMISSION_DENIED if the token is
        invalid or belongs to another node. It is UNAVAILABLE while this agent has no valid certificate.
        """
        node = await agent_of(context)
        identity = self._enrolment.current
        authority = identity.authority if identity else b""
        if not authority:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "this agent's own certificate has expired; try again later"
            )
        try:
            slot_token = slot_tokens.verify(token, authority)
        except InvalidSlotToken as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        covered = may_read(slot_token.job_uid, job_uid) if reads else slot_token.job_uid == job_uid
        if not covered or slot_token.node != node:
            text = f"the slot token does not belong to job {job_uid} on node {node}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        return slot_token
