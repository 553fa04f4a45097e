"""What can be set about the dashboard: `CONVOY_DASHBOARD_` + the attribute's name in capitals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from convoy_operator.settings import SettingError

PREFIX = "CONVOY_DASHBOARD_"
LOCAL = "127.0.0.1"
"""What `kubectl port-forward` dials in the pod."""
LOCAL_NAMES = frozenset({"localhost", LOCAL, "::1"})
Network = IPv4Network | IPv6Network


class AuthMode(StrEnum):
    """How it is found out who looks."""

    TOKEN_REVIEW = "TokenReview"  # noqa: S105 - no password
    """A token of the cluster's, which the API server reviews."""
    PROXY = "Proxy"
    """A proxy in front says it in headers."""
    NONE = "None"
    """It is not: everybody who reaches the port sees everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """Settings of the dashboard's process. Times are seconds."""

    auth_mode: str = AuthMode.TOKEN_REVIEW.value
    """One of `AuthMode`."""
    proxy_cidrs: str = ""
    """Addresses from which X-Forwarded-User and X-Forwarded-Groups are believed, as networks with commas."""
    logs: bool = True
    """Whether logs of pods can be read; its role needs `get pods/log` for it."""
    secure_cookie: bool = False
    """Whether browsers may send the session's cookie over TLS alone; for a dashboard that has TLS."""
    idle_seconds: float = 3600.0
    """A session in which no reader did anything for so long is over. An update of its own is no doing."""
    session_seconds: float = 43_200.0
    """A session is over after this, whatever is done in it."""
    recheck_seconds: float = 60.0
    """How long an answer about a token or a right is believed."""

    most_pages: int = 150
    """Pages that may be open at a time: one takes a megabyte or two of memory."""

    most_pages_each: int = 50
    """Of one user, where it is known who looks; never more than are free besides."""

    bind: str = ""
    """Address that all ports are bound to; all of IPv4 and IPv6 when empty."""
    pages_bind: str = ""
    """Address that the port of the pages is bound to; where empty, `LOCAL` in the mode None, else `bind`."""
    hosts: str = ""
    """Names by which browsers may reach it, with commas and without ports; where empty, those of this very
    machine in the mode None, else any."""
    port: int = 8090
    """Port of the pages."""
    metrics_port: int = 8080
    """Port of /metrics."""
    probe_port: int = 8081
    """Port of /healthz and /readyz."""
    qps: float = 50.0
    """Requests per second to the API server, on average."""
    burst: int = 200
    """Requests that may go at once after a quiet time."""
    stop_seconds: int = 5
    """For open pages to be closed at SIGTERM."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""

    @property
    def proxies(self) -> tuple[Network, ...]:
        """`proxy_cidrs`, read."""
        return tuple(ip_network(one.strip()) for one in self.proxy_cidrs.split(",") if one.strip())

    @property
    def pages_address(self) -> str:
        """Address of the pages: where nobody is asked who they are, other pods must not reach them."""
        return self.pages_bind or (LOCAL if self.auth_mode == AuthMode.NONE else self.bind)

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """`hosts`, read; any when empty."""
        given = frozenset(one.strip().lower() for one in self.hosts.split(",") if one.strip())
        return given or (LOCAL_NAMES if self.auth_mode == AuthMode.NONE else given)


_BOOLEANS = {"true": True, "false": False}


def from_environment(environ: Mapping[str, str] = os.environ) -> DashboardSettings:
    """Settings from `CONVOY_DASHBOARD_*` variables; raises SettingError for a value that cannot be used."""
    given: dict[str, Any] = {}
    for item in fields(DashboardSettings):
        variable = PREFIX + item.name.upper()
        text = environ.get(variable)
        if text is None:
            continue
        kind: type[Any] = type(item.default)
        try:
            given[item.name] = _BOOLEANS[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError):
            raise SettingError(f"{variable}={text!r} is not of type {kind.__name__}") from None
        if kind in (int, float) and given[item.name] < 0:
            raise SettingError(f"{variable}={text!r} must not be negative")
    settings = DashboardSettings(**given)
    if settings.auth_mode not in tuple(AuthMode):
        raise SettingError(f"{PREFIX}AUTH_MODE={settings.auth_mode!r} must be one of {', '.join(AuthMode)}")
    try:
        proxies = settings.proxies
    except ValueError as error:
        raise SettingError(f"{PREFIX}PROXY_CIDRS: {error}") from None
    if settings.auth_mode == AuthMode.PROXY and not proxies:
        raise SettingError(f"{PREFIX}AUTH_MODE=Proxy needs {PREFIX}PROXY_CIDRS: whose headers are believed")
    return settings
