"""Where the API server is, and who asks it: what every process of the operator's distribution begins with."""

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
    """A client of the API server: of the pod's service account, or of the kubeconfig outside of a cluster."""
    configuration = Configuration()
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        load_incluster_config(client_configuration=configuration)
    else:
        await load_kube_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = settings.connections
    return ApiClient(configure_client(configuration))


def configure_client(configuration: Configuration) -> Configuration:
    """Looks for a proxy once: aiohttp would read environment and .netrc before every request, in threads."""
    host = urlsplit(configuration.host)
    if configuration.proxy is None and host.hostname and not proxy_bypass(host.hostname):
        configuration.proxy = getproxies().get(host.scheme)
    configuration.client_session_kwargs = {"trust_env": False, "cookie_jar": aiohttp.DummyCookieJar()}
    return configuration


def package_version() -> str:
    """Version of the installed distribution; `dev` when it is run from a checkout."""
    try:
        return version("convoy-operator")
    except PackageNotFoundError:
        return "dev"
