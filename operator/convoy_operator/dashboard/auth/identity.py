"""Who looks: as the API server says of a token, or a proxy of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from convoy_operator.dashboard.settings import Network

MOST_NAME, MOST_GROUPS = 512, 512
_RESERVED = "system:"
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as the API server knows users."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What the authenticator adds, which authorizers may go by."""


def from_review(status: Mapping[str, Any]) -> Identity | None:
    """The user in the status of a TokenReview; None for a token that is refused."""
    user = status.get("user") or {}
    name = user.get("username")
    if status.get("authenticated") is not True or not isinstance(name, str) or not name:
        return None
    extra = user.get("extra") or {}
    # Their order means nothing, and need not be the same the next time.
    return Identity(
        name,
        tuple(sorted(map(str, user.get("groups") or ()))),
        str(user.get("uid") or ""),
        tuple(sorted((str(key), tuple(sorted(map(str, values or ())))) for key, values in extra.items())),
    )


def from_headers(user: str, groups: str) -> Identity | None:
    """The user whom a proxy names, with groups between commas; None for a name that is no person's.

    A proxy speaks of people: the names that Kubernetes keeps for itself are not believed from it, or
    whoever can choose a group of that name at the proxy's would be an administrator of the cluster.
    """
    user = user.strip()
    if not user or len(user) > MOST_NAME or user.startswith(_RESERVED):
        return None
    named = [one.strip() for one in groups.split(",")][:MOST_GROUPS]
    kept = dict.fromkeys(one for one in named if one and not one.startswith(_RESERVED))
    return Identity(user, (*kept, AUTHENTICATED))


def address_of(peer: str, forwarded: str, proxies: Iterable[Network]) -> str:
    """Whose request it is. `forwarded`: X-Forwarded-For, of which only what believed proxies add is."""
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
    """Whether an address is in one of the networks; False for what is no address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in networks)
