"""Settings of the dashboard. Each is read from `CONVOY_DASHBOARD_` + the attribute's name in capitals."""

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
"""The address that `kubectl port-forward` connects to inside the pod."""
LOCAL_NAMES = frozenset({"localhost", LOCAL, "::1"})
Network = IPv4Network | IPv6Network


class AuthMode(StrEnum):
    """How the dashboard authenticates users."""

    TOKEN_REVIEW = "TokenReview"  # noqa: S105 - no password
    """Readers log in with a token of the cluster. The API server reviews it."""
    PROXY = "Proxy"
    """A proxy in front of the dashboard authenticates users and sends their names in headers."""
    NONE = "None"
    """No authentication: anyone who can reach the port sees everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """Settings of the dashboard's process. Times are in seconds."""

    auth_mode: str = AuthMode.TOKEN_REVIEW.value
    """A value of `AuthMode`."""
    proxy_cidrs: str = ""
    """Comma-separated networks of the proxies whose X-Forwarded-User and X-Forwarded-Groups are trusted."""
    logs: bool = True
    """True if pages may show logs of pods. The dashboard's role then needs `get pods/log`."""
    secure_cookie: bool = False
    """True if browsers may send the session cookie over TLS only. Requires TLS in front of the dashboard."""
    idle_seconds: float = 3600.0
    """Seconds after which an unused session ends. Automatic updates of a page are not a use."""
    session_seconds: float = 43_200.0
    """Longest lifetime of a session."""
    recheck_seconds: float = 60.0
    """Seconds after which a token or a permission is reviewed again."""

    most_pages: int = 150
    """Maximum number of open pages. Each needs one to two megabytes of memory."""

    most_pages_each: int = 50
    """Maximum number of open pages of one user, if users are known. A user never gets more pages than
    remain free.
    """

    bind: str = ""
    """Address that all ports listen on. If empty, all IPv4 and IPv6 addresses."""
    pages_bind: str = ""
    """Address that the pages listen on. If empty, `LOCAL` in the mode None, else `bind`."""
    hosts: str = ""
    """Comma-separated host names, without ports, that browsers may use. If empty, `LOCAL_NAMES` in the mode
    None, else any name.
    """
    port: int = 8090
    """Port of the pages."""
    metrics_port: int = 8080
    """Port of /metrics."""
    probe_port: int = 8081
    """Port of /healthz and /readyz."""
    qps: float = 50.0
    """Average limit of requests per second to the API server."""
    burst: int = 200
    """Requests allowed at once after an idle time."""
    stop_seconds: int = 5
    """Seconds to close open pages after SIGTERM."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""

    @property
    def proxies(self) -> tuple[Network, ...]:
        """The networks of `proxy_cidrs`."""
        return tuple(ip_network(one.strip()) for one in self.proxy_cidrs.split(",") if one.strip())

    @property
    def pages_address(self) -> str:
        """Address that the pages listen on. Without authentication, other pods must not reach it."""
        return self.pages_bind or (LOCAL if self.auth_mode == AuthMode.NONE else self.bind)

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The host names of `hosts`. Empty if any name is allowed."""
        given = frozenset(one.strip().lower() for one in self.hosts.split(",") if one.strip())
        return given or (LOCAL_NAMES if self.auth_mode == AuthMode.NONE else given)


_BOOLEANS = {"true": True, "false": False}


def from_environment(environ: Mapping[str, str] = os.environ) -> DashboardSettings:
    """Return the settings of the `CONVOY_DASHBOARD_*` variables. Raise SettingError for an invalid value."""
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
            raise SettingError(f"{variable}={text!r} must be of type {kind.__name__}") from None
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
        raise SettingError(
            f"{PREFIX}AUTH_MODE=Proxy requires {PREFIX}PROXY_CIDRS, the networks of the trusted proxies"
        )
    return settings
