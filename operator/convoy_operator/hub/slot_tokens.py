"""Signs and verifies slot tokens, which agents present to one another and to the hub. Derives the keys of
incarnations, with which ranks authenticate each other.
"""

from __future__ import annotations

from collections import OrderedDict

from convoy_agents.wire import slot_tokens
from convoy_agents.wire.slot_tokens import InvalidSlotToken, SlotToken
from convoy_controllers.checkpoint.replica_state import may_read
from convoy_operator.hub.ca import Authority

_MAX_SIGNED = 16_384
"""Maximum number of signed tokens in the cache. Signing the same token twice gives different texts, so
without the cache a repeated assignment would differ from the first one.
"""


class SlotTokenIssuer:
    """Signs and verifies slot tokens, and derives keys, with one CA. Before `start` it has no CA, so it signs
    and accepts no token.
    """

    def __init__(self) -> None:
        self._authority: Authority | None = None
        self._signed: OrderedDict[SlotToken, str] = OrderedDict()

    def start(self, authority: Authority) -> None:
        """Sign and verify with this CA from now on."""
        self._authority = authority
        self._signed.clear()

    def sign(self, slot_token: SlotToken) -> str:
        """Return the signed form of a slot token; an empty text without a CA."""
        if self._authority is None:
            return ""
        token = self._signed.pop(slot_token, "") or self._authority.sign_slot_token(slot_token)
        self._signed[slot_token] = token
        while len(self._signed) > _MAX_SIGNED:
            self._signed.popitem(last=False)
        return token

    def incarnation_key(self, job_uid: str, incarnation: int) -> bytes:
        """Return the key of a job's incarnation; empty without a CA."""
        return self._authority.incarnation_key(job_uid, incarnation) if self._authority else b""

    def job_key(self, job_uid: str) -> bytes:
        """Return the key of a job; empty without a CA, or without a job."""
        return self._authority.job_key(job_uid) if self._authority and job_uid else b""

    def current(self, key_id: str) -> bool:
        """Return True if tokens that were signed by the key with this id are accepted."""
        return self._authority is not None and key_id == self._authority.key_id

    def holds(self, token: str, job_uid: str, node: str) -> bool:
        """Return True if a token proves that the node had a slot of the job in any incarnation. The state
        of a replica may be on each node that had a replica of its role and revision.
        """
        if self._authority is None:
            return False
        try:
            found = slot_tokens.verify(token, self._authority.certificate_pem)
        except InvalidSlotToken:
            return False
        return found.node == node and may_read(found.job_uid, job_uid)
