"""The connection to the API server, shared by every program of the operator's distribution."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config

from convoy_operator.settings import Settings


async def connect(settings: Settings) -> ApiClient:
    """Return a client of the API server. Use the pod's service account inside a cluster, and the kubeconfig
    elsewhere.
    """
    configuration = Configuration()
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        load_incluster_config(client_configuration=configuration)
    else:
        await load_kube_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = settings.connections
    return ApiClient(configure_client(configuration))


def configure_client(configuration: Configuration) -> Configuration:
    """Read the proxy settings once and store them in the configuration. Otherwise aiohttp would read the
    environment and .netrc in a thread before every request.
    """
    host = urlsplit(configuration.host)
    if configuration.proxy is None and host.hostname and not proxy_bypass(host.hostname):
        configuration.proxy = getproxies().get(host.scheme)
    configuration.client_session_kwargs = {"trust_env": False, "cookie_jar": aiohttp.DummyCookieJar()}
    return configuration


def package_version() -> str:
    """Return the version of the installed distribution; `dev` for a checkout."""
    try:
        return version("convoy-operator")
    except PackageNotFoundError:
        return "dev"
