"""The hub's word that a node has a slot in an incarnation of a job, which its agent shows to other agents.

A certificate says which node speaks, a slot token for which job: a JSON Web Token (RFC 7519) that the hub signs
with the authority's key. It outlives changes of leader, and nobody has to ask the hub whether it is true.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "convoy-agents"
"""Says that a token is a slot token, whatever else its key may come to sign."""
MAX_CHARACTERS = 4096
"""Characters of a token; longer ones are not looked at."""
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_CACHED = 8192
"""Slot tokens that were looked at and are remembered: a shard's two calls show the same."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class InvalidSlotToken(ValueError):
    """No slot token of this authority's."""


@dataclass(frozen=True, slots=True)
class SlotToken:
    """That a node has a slot."""

    job_uid: str
    incarnation: int
    slot: int
    node: str


def sign(slot_token: SlotToken, key: PrivateKey) -> str:
    """The token. ValueError for a key of a kind that no token is signed with."""
    public = key.public_key()
    claims = {
        "aud": AUDIENCE,
        "sub": slot_token.node,
        "job": slot_token.job_uid,
        "incarnation": slot_token.incarnation,
        "slot": slot_token.slot,
    }
    return jwt.encode(claims, key, _algorithm(public), headers={"kid": key_id(public)})


@lru_cache(_CACHED)
def read(token: str, authority: bytes) -> SlotToken:
    """What a token says, if one of these certificates' keys (PEM) has signed it. InvalidSlotToken."""
    if not token or len(token) > MAX_CHARACTERS:
        raise InvalidSlotToken("there is no slot token")
    wanted = signing_key_id(token)
    for key in _keys(authority):
        if key_id(key) == wanted:
            return _read(token, key)
    raise InvalidSlotToken("the slot token is of another authority")


def signing_key_id(token: str) -> str:
    """Which key a token says that it is signed with; empty when it is no token. Nothing is verified."""
    try:
        return str(jwt.get_unverified_header(token[:MAX_CHARACTERS]).get("kid", ""))
    except jwt.InvalidTokenError:
        return ""


def key_id(key: PublicKey) -> str:
    """How tokens name the key that they are signed with."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()[:32]


def _read(token: str, key: PublicKey) -> SlotToken:
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[_algorithm(key)],
            audience=AUDIENCE,
            options={"require": ["aud", "sub", "job", "incarnation", "slot"]},
        )
        return SlotToken(
            str(claims["job"]), int(claims["incarnation"]), int(claims["slot"]), str(claims["sub"])
        )
    except (jwt.InvalidTokenError, TypeError, ValueError) as error:
        raise InvalidSlotToken(f"the slot token does not hold: {error}") from None


@lru_cache(8)
def _keys(authority: bytes) -> tuple[PublicKey, ...]:
    """None for what is no certificate."""
    if b"BEGIN CERTIFICATE" not in authority:
        return ()
    keys = [one.public_key() for one in x509.load_pem_x509_certificates(authority)]
    return tuple(key for key in keys if isinstance(key, PublicKey))


def _algorithm(key: PublicKey) -> str:
    if isinstance(key, rsa.RSAPublicKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "EdDSA"
    if key.curve.name not in _CURVES:
        raise ValueError(f"nothing is signed with a key of curve {key.curve.name}")
    return _CURVES[key.curve.name]
