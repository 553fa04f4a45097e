"""The client of the API server, before anything is asked of it."""

from __future__ import annotations

import pytest
from kubernetes.aio.client import Configuration

from convoy_operator.connection import lean


@pytest.mark.parametrize(
    ("environment", "host", "given", "proxy"),
    [
        ({}, "https://10.0.0.1:443", None, None),
        ({"https_proxy": "http://p:3128"}, "https://10.0.0.1:443", None, "http://p:3128"),
        ({"https_proxy": "http://p:3128"}, "https://10.0.0.1:443", "http://mine:1", "http://mine:1"),
        ({"https_proxy": "http://p:3128", "no_proxy": "10.0.0.1"}, "https://10.0.0.1:443", None, None),
        ({"http_proxy": "http://p:3128"}, "https://10.0.0.1:443", None, None),
    ],
)
async def test_the_environments_proxy_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    host: str,
    given: str | None,
    proxy: str | None,
) -> None:
    for name in ("https_proxy", "http_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    configuration = Configuration(host=host)
    configuration.proxy = given
    assert lean(configuration).proxy == proxy
    assert configuration.client_session_kwargs["trust_env"] is False
