"""The slot tokens that the hub signs for agents to show to one another, and to it."""

from __future__ import annotations

from collections import OrderedDict

from convoy_agents.wire import slot_tokens
from convoy_agents.wire.slot_tokens import InvalidSlotToken, SlotToken
from convoy_operator.hub.ca import Authority

_MOST = 16_384
"""Tokens that are remembered: an assignment that is sent again is the same, though signatures are not."""


class SlotTokenIssuer:
    """Issues and checks tokens by one authority. Without one nothing is signed, and nothing believed."""

    def __init__(self) -> None:
        self._authority: Authority | None = None
        self._signed: OrderedDict[SlotToken, str] = OrderedDict()

    def start(self, authority: Authority) -> None:
        """Sign by this authority from now on."""
        self._authority = authority
        self._signed.clear()

    def sign(self, slot_token: SlotToken) -> str:
        """Return the token of a slot; empty without an authority."""
        if self._authority is None:
            return ""
        token = self._signed.pop(slot_token, "") or self._authority.sign_slot_token(slot_token)
        self._signed[slot_token] = token
        while len(self._signed) > _MOST:
            self._signed.popitem(last=False)
        return token

    def current(self, key_id: str) -> bool:
        """Return whether tokens that a key has signed are believed."""
        return self._authority is not None and key_id == self._authority.key_id

    def holds(self, token: str, job_uid: str, node: str) -> bool:
        """Return whether a token proves that a node had a slot of a job, in whichever incarnation."""
        if self._authority is None:
            return False
        try:
            found = slot_tokens.read(token, self._authority.certificate_pem)
        except InvalidSlotToken:
            return False
        return (found.job_uid, found.node) == (job_uid, node)
