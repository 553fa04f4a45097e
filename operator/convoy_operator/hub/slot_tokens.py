"""The slot tokens that the hub signs. Agents show them to one another and to the hub."""

from __future__ import annotations

from collections import OrderedDict

from convoy_agents.wire import slot_tokens
from convoy_agents.wire.slot_tokens import InvalidSlotToken, SlotToken
from convoy_operator.hub.ca import Authority

_MAX_SIGNED = 16_384
"""Maximum number of tokens that are cached: a repeated assignment must be identical, but signatures of the
same token differ.
"""


class SlotTokenIssuer:
    """Issues and checks slot tokens with one CA. Without a CA it signs nothing and accepts nothing."""

    def __init__(self) -> None:
        self._authority: Authority | None = None
        self._signed: OrderedDict[SlotToken, str] = OrderedDict()

    def start(self, authority: Authority) -> None:
        """Sign with this CA from now on."""
        self._authority = authority
        self._signed.clear()

    def sign(self, slot_token: SlotToken) -> str:
        """Return the signed token of a slot; empty without a CA."""
        if self._authority is None:
            return ""
        token = self._signed.pop(slot_token, "") or self._authority.sign_slot_token(slot_token)
        self._signed[slot_token] = token
        while len(self._signed) > _MAX_SIGNED:
            self._signed.popitem(last=False)
        return token

    def current(self, key_id: str) -> bool:
        """Return True if tokens signed by that key are accepted."""
        return self._authority is not None and key_id == self._authority.key_id

    def holds(self, token: str, job_uid: str, node: str) -> bool:
        """Return True if a token proves that a node had a slot of a job, in any incarnation."""
        if self._authority is None:
            return False
        try:
            found = slot_tokens.verify(token, self._authority.certificate_pem)
        except InvalidSlotToken:
            return False
        return (found.job_uid, found.node) == (job_uid, node)
