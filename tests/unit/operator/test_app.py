"""The client of the API server, before anything is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from kubernetes.aio.client import Configuration

from convoy_operator.app import Operator
from convoy_operator.connection import lean
from convoy_operator.settings import CA_MAKERS, Settings

from .conftest import FakeApi


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


@pytest.mark.parametrize("maker", CA_MAKERS)
def test_an_authority_that_others_make_is_waited_for(
    api: FakeApi, virtual: Callable[..., Any], maker: str
) -> None:
    async def start() -> bool:
        operator = Operator(Settings(namespace="sys", ca_maker=maker), Mock())
        operator.gateway = api  # type: ignore[assignment]  # in memory
        try:
            async with asyncio.timeout(60):
                await operator._authority()
        except TimeoutError:
            return False
        return True

    assert virtual(start()) is (maker == "Operator")
    assert api.count("create", "secrets") == (maker == "Operator")
    assert maker == "Operator" or api.count("get", "secrets") > 3
