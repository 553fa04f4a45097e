"""Settings of the dashboard. The variable of a setting is `CONVOY_DASHBOARD_` and the attribute's name in
capitals.
"""

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
"""Address inside the pod to which `kubectl port-forward` connects."""
LOCAL_NAMES = frozenset({"localhost", LOCAL, "::1"})
Network = IPv4Network | IPv6Network


class AuthMode(StrEnum):
    """The dashboard's method of authentication."""

    TOKEN_REVIEW = "TokenReview"  # noqa: S105 - no password
    """Users log in with a Kubernetes token, which the API server reviews."""
    PROXY = "Proxy"
    """A proxy in front of the dashboard authenticates the users and sends their names in headers."""
    NONE = "None"
    """No authentication: anyone who can reach the port may see everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """Settings of one dashboard process. Times are in seconds."""

    auth_mode: str = AuthMode.TOKEN_REVIEW.value
    """A value of `AuthMode`."""
    proxy_cidrs: str = ""
    """Comma-separated networks of the proxies whose X-Forwarded-User and X-Forwarded-Groups are trusted."""
    logs: bool = True
    """True if pages may show the logs of pods. The dashboard's role must then allow `get pods/log`."""
    secure_cookie: bool = False
    """True if browsers may send the session cookie only over TLS. This needs TLS in front of the dashboard.
    """
    idle_seconds: float = 3600.0
    """Seconds without use after which a session ends. Automatic updates of a page do not count as use."""
    session_seconds: float = 43_200.0
    """Maximum lifetime of a session in seconds."""
    recheck_seconds: float = 60.0
    """Seconds after which a token or a permission is reviewed again."""

    most_pages: int = 150
    """Maximum number of open pages. Each page needs one to two megabytes of memory."""

    most_pages_each: int = 50
    """Maximum number of open pages of one user, if there is authentication. The limit is lower when nearly
    `most_pages` pages are open; see `page_limit`.
    """

    bind: str = ""
    """Address on which all ports listen. If empty, they listen on all IPv4 and IPv6 addresses."""
    pages_bind: str = ""
    """Address on which the pages' port listens. If empty, the port listens on `LOCAL` in mode None and on
    `bind` in the other modes.
    """
    hosts: str = ""
    """Comma-separated host names, without ports, under which browsers may open the dashboard. If empty,
    mode None allows `LOCAL_NAMES`, and the other modes allow any name.
    """
    port: int = 8090
    """Port of the pages."""
    metrics_port: int = 8080
    """Port of the path /metrics."""
    probe_port: int = 8081
    """Port of the paths /healthz and /readyz."""
    qps: float = 50.0
    """Maximum average number of requests per second to the API server."""
    burst: int = 200
    """Number of requests that may be sent to the API server at once after an idle time."""
    stop_seconds: int = 5
    """Seconds that open pages have to close after SIGTERM."""
    log_level: str = "INFO"
    """Minimum level of logged messages: DEBUG, INFO, WARNING or ERROR."""

    @property
    def proxies(self) -> tuple[Network, ...]:
        """Return the networks in `proxy_cidrs`."""
        return tuple(ip_network(one.strip()) for one in self.proxy_cidrs.split(",") if one.strip())

    @property
    def pages_address(self) -> str:
        """Return the address on which the pages' port listens. In mode None this is `LOCAL` by default, so
        that other pods cannot reach the pages.
        """
        return self.pages_bind or (LOCAL if self.auth_mode == AuthMode.NONE else self.bind)

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Return the host names under which browsers may open the dashboard; empty if any name is allowed."""
        given = frozenset(one.strip().lower() for one in self.hosts.split(",") if one.strip())
        return given or (LOCAL_NAMES if self.auth_mode == AuthMode.NONE else given)


_BOOLEANS = {"true": True, "false": False}


def from_environment(environ: Mapping[str, str] = os.environ) -> DashboardSettings:
    """Return the settings in `CONVOY_DASHBOARD_*` variables. Raises SettingError for an invalid value."""
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
