"""Tests of signing and verifying slot tokens."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.integration.agents.harness import Authority

from convoy_agents.wire import slot_tokens
from convoy_agents.wire.slot_tokens import InvalidSlotToken, SlotToken

OURS, OTHERS = Authority(), Authority()
TOKEN = SlotToken("uid-of-job", 3, 7, "node-1")
CLAIMS = {"aud": "convoy-agents", "sub": "node-1", "job": "uid-of-job", "incarnation": 3, "slot": 7}
KID = {"kid": slot_tokens.key_id(OURS.key.public_key())}


def encoded(claims: dict[str, Any], key: Any = OURS.key, algorithm: str | None = "ES256") -> str:
    return jwt.encode(claims, key, algorithm, headers=KID)


def altered(token: str, **claims: Any) -> str:
    head, body, signature = token.split(".")
    signed = json.loads(base64.urlsafe_b64decode(body + "=="))
    text = json.dumps({**signed, **claims}).encode()
    return ".".join((head, base64.urlsafe_b64encode(text).decode().rstrip("="), signature))


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["p-256", "p-384", "p-521", "ed25519", "rsa"],
)
def test_a_slot_token_verifies_with_any_supported_key(key: Any) -> None:
    authority = Authority(key)
    token = slot_tokens.sign(TOKEN, key)
    assert slot_tokens.verify(token, authority.pem) == TOKEN
    assert slot_tokens.signing_key_id(token) == slot_tokens.key_id(key.public_key())
    # After a renewal of the authority, the authority file contains two certificates.
    assert slot_tokens.verify(token, OTHERS.pem + authority.pem) == TOKEN


def test_an_unsupported_key_type_cannot_sign() -> None:
    with pytest.raises(ValueError, match="secp256k1"):
        slot_tokens.sign(TOKEN, ec.generate_private_key(ec.SECP256K1()))


GOOD = slot_tokens.sign(TOKEN, OURS.key)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        "a.b.c",
        "x" * 10_000,
        GOOD[:-4],
        *(
            altered(GOOD, **{name: value})
            for name, value in (("sub", "node-2"), ("job", "else"), ("slot", 0))
        ),
        altered(GOOD, incarnation=4),
        slot_tokens.sign(TOKEN, OTHERS.key),
        encoded(CLAIMS, OTHERS.key),
        encoded(CLAIMS, None, "none"),
        encoded(CLAIMS, "a secret that is as long as it has to be", "HS256"),
        encoded({**CLAIMS, "aud": "convoy-hub"}),
        *(encoded({name: value for name, value in CLAIMS.items() if name != missing}) for missing in CLAIMS),
        encoded({**CLAIMS, "incarnation": "first"}),
    ],
)
def test_an_altered_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidSlotToken):
        slot_tokens.verify(token, OURS.pem)
    assert slot_tokens.verify(GOOD, OURS.pem) == TOKEN


@pytest.mark.parametrize("authority", [b"", b"no certificate", OTHERS.pem])
def test_a_token_of_another_authority_is_refused(authority: bytes) -> None:
    with pytest.raises(InvalidSlotToken, match="signed by another authority"):
        slot_tokens.verify(GOOD, authority)


def test_every_field_is_signed() -> None:
    tokens = {
        slot_tokens.verify(slot_tokens.sign(replace(TOKEN, **{field: value}), OURS.key), OURS.pem)
        for field, value in (("job_uid", "b"), ("incarnation", 4), ("slot", 8), ("node", "node-2"))
    }
    assert len(tokens | {TOKEN}) == 5


@pytest.mark.parametrize("token", ["", "nonsense", "a.b.c", "x" * 10_000])
def test_a_malformed_token_has_no_key_id(token: str) -> None:
    assert slot_tokens.signing_key_id(token) == ""
