"""The identity of a user, from a TokenReview or from the headers of a proxy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from convoy_operator.dashboard.settings import Network

MAX_NAME, MAX_GROUPS = 512, 512
_RESERVED = "system:"
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as the API server describes users."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Additional attributes of the user that the authenticator sets and authorizers may read."""


def from_review(status: Mapping[str, Any]) -> Identity | None:
    """Return the user in the status of a TokenReview, or None if the token was rejected."""
    user = status.get("user") or {}
    name = user.get("username")
    if status.get("authenticated") is not True or not isinstance(name, str) or not name:
        return None
    extra = user.get("extra") or {}
    # Sort groups and attributes: their order has no meaning and may differ between reviews of the same token.
    return Identity(
        name,
        tuple(sorted(map(str, user.get("groups") or ()))),
        str(user.get("uid") or ""),
        tuple(sorted((str(key), tuple(sorted(map(str, values or ())))) for key, values in extra.items())),
    )


def from_headers(user: str, groups: str) -> Identity | None:
    """Return the user in a proxy's headers, or None if the name is empty, too long or reserved. `groups` is
    a comma-separated list.

    Names and groups that begin with `system:` are reserved for Kubernetes and are not trusted. Otherwise a
    user who can choose a group at the proxy could become an administrator of the cluster.
    """
    user = user.strip()
    if not user or len(user) > MAX_NAME or user.startswith(_RESERVED):
        return None
    named = [one.strip() for one in groups.split(",")][:MAX_GROUPS]
    kept = dict.fromkeys(one for one in named if one and not one.startswith(_RESERVED))
    return Identity(user, (*kept, AUTHENTICATED))


def address_of(peer: str, forwarded: str, proxies: Iterable[Network]) -> str:
    """Return the client's address. `peer` is the address of the connection, `forwarded` the X-Forwarded-For
    header. An entry of the header counts only if a trusted proxy added it.
    """
    proxies = tuple(proxies)
    for one in (peer, *(part.strip() for part in reversed(forwarded.split(",")))):
        if not within(one, proxies):
            return one if one == peer or _is_address(one) else peer
    return peer


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def within(address: str, networks: Iterable[Network]) -> bool:
    """Return True if the address is in one of the networks; False for text that is not an address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)
