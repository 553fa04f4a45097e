"""Slot tokens. The hub signs a slot token to prove to other agents that a node has a slot in an incarnation
of a job.

A certificate identifies the calling node, and a slot token identifies the job for which the node may call.
A slot token is a JSON Web Token (RFC 7519), signed by the hub with the authority's key. The token stays
valid across leader changes, and a receiver can verify it without the hub.
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
"""The audience claim of slot tokens. It distinguishes slot tokens from other tokens that the same key may
sign.
"""
MAX_CHARACTERS = 4096
"""Maximum characters of a token. A longer token is rejected without being parsed."""
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_CACHED = 8192
"""Maximum number of verified slot tokens that are cached. The cache helps because the two calls for one
shard carry the same token.
"""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class InvalidSlotToken(ValueError):
    """The slot token is missing, malformed, or not signed by the expected authority."""


@dataclass(frozen=True, slots=True)
class SlotToken:
    """The claim that a node has a slot of a job in an incarnation."""

    job_uid: str
    incarnation: int
    slot: int
    node: str


def sign(slot_token: SlotToken, key: PrivateKey) -> str:
    """Return the signed token. Raises ValueError if the type of the key is unsupported."""
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
def verify(token: str, authority: bytes) -> SlotToken:
    """Verify a token with the keys of the certificates in `authority` (PEM), and return the token's claim.
    Raises InvalidSlotToken if the token is invalid.
    """
    if not token or len(token) > MAX_CHARACTERS:
        raise InvalidSlotToken("the call has no slot token")
    wanted = signing_key_id(token)
    for key in _keys(authority):
        if key_id(key) == wanted:
            return _verify(token, key)
    raise InvalidSlotToken("the slot token was signed by another authority")


def signing_key_id(token: str) -> str:
    """Return the id of the key that signed the token, as the token states it, without verification. The id
    is empty if the token is malformed.
    """
    try:
        return str(jwt.get_unverified_header(token[:MAX_CHARACTERS]).get("kid", ""))
    except jwt.InvalidTokenError:
        return ""


def key_id(key: PublicKey) -> str:
    """Return the id of a public key. Each token contains the id of its signing key."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()[:32]


def _verify(token: str, key: PublicKey) -> SlotToken:
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
        raise InvalidSlotToken(f"the slot token is invalid: {error}") from None


@lru_cache(8)
def _keys(authority: bytes) -> tuple[PublicKey, ...]:
    """Return the public keys of PEM certificates; an empty tuple if `authority` contains no PEM
    certificate.
    """
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
        raise ValueError(f"tokens cannot be signed with a key of curve {key.curve.name}")
    return _CURVES[key.curve.name]
