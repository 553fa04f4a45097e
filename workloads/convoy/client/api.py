"""A connection to the API server. It sends requests, reads streams and raises the client's errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import kube_config
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from convoy.client.errors import NoCluster, Unreachable, error_of

TIMEOUT_SECONDS = 30
"""Seconds to wait for a response. This limit does not hold for streams."""
MAX_LINE = 2**24
"""Maximum number of bytes in one line of a stream: ten times the size of the largest object that etcd
accepts.
"""
_MALFORMED = (OSError, yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError)
"""Exceptions that the package kubernetes raises for an unreadable or malformed kubeconfig."""
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Api:
    """A connection to one API server, with the rights of one user and a default namespace."""

    def __init__(self, connection: Any, namespace: str) -> None:
        """Create a connection from `connection`, an ApiClient of the package kubernetes."""
        self.namespace = namespace
        self.custom: Any = client.CustomObjectsApi(connection)
        self.core: Any = client.CoreV1Api(connection)
        self._host = connection.configuration.host

    @classmethod
    def connect(
        cls, namespace: str | None = None, context: str | None = None, kubeconfig: str | Path | None = None
    ) -> Api:
        """Connect with a kubeconfig. In a pod without a kubeconfig, connect with the pod's service account.

        Raises NoCluster if there is no configuration, or if the configuration cannot be read.
        """
        if kubeconfig is None and (missing := missing_kubeconfig(os.environ)):
            raise NoCluster(missing)
        settings = client.Configuration()
        try:
            default = _load(settings, context, kubeconfig)
        except _MALFORMED as error:
            path = kubeconfig or kube_config.KUBE_CONFIG_DEFAULT_LOCATION
            why = " ".join(str(error).split())
            raise NoCluster(f"no cluster: the kubeconfig {path} cannot be read: {why}") from error
        except ConfigException as error:
            if context or kubeconfig or "KUBERNETES_SERVICE_HOST" not in os.environ:
                raise NoCluster(f"no cluster: {_absent(kubeconfig) or error}") from error
            default = _load_from_pod(settings)
        return cls(client.ApiClient(settings), namespace or default)

    def call(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        """Send one request. Raises ApiError if the server refuses it, and Unreachable if the server does
        not respond.
        """
        try:
            return verb(*arguments, **{"_request_timeout": TIMEOUT_SECONDS, **options})
        except ApiException as error:
            raise error_of(error.status, error.reason, error.body) from error
        except HTTPError as error:
            raise Unreachable(f"the API server {self._host} does not respond: {cause(error)}") from error
        except RecursionError as error:
            raise Unreachable("an object in the response is nested too deeply to parse") from error

    def dry_run_pod(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Let the API server check a pod in a dry run. Raises ApiError if the server refuses the pod, and
        Unreachable if the server does not respond.

        The request is built here, because the method of the package kubernetes would first check `body`
        against the package's own models.
        """
        connection = self.core.api_client
        request = connection.param_serialize(
            "POST",
            "/api/v1/namespaces/{namespace}/pods",
            path_params={"namespace": namespace},
            query_params=[("dryRun", "All"), ("fieldValidation", "Strict")],
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=dict(body),
            auth_settings=["BearerToken"],
        )
        response = self.call(connection.call_api, *request)
        text = response.read()
        if not 200 <= response.status < 300:
            raise error_of(response.status, response.reason, text)

    def lines(self, what: str, verb: Any, *arguments: Any, **options: Any) -> Iterator[bytes]:
        """Yield the lines of a streamed response. Close the iterator to end the stream.

        Raises Unreachable if the stream is interrupted; `what` names the stream in that error.
        """
        response = self.call(verb, *arguments, _preload_content=False, **options)
        rest = b""
        try:
            for chunk in response.stream():
                *found, rest = (rest + chunk).split(b"\n")
                yield from found
                if len(rest) > MAX_LINE:
                    raise Unreachable(f"{what} has a line of more than {MAX_LINE} bytes")
        except HTTPError as error:
            raise Unreachable(f"{what} was interrupted: {cause(error)}") from error
        finally:
            # The rest of the response may still arrive on this connection, so the connection cannot be
            # reused.
            response.close()
        if rest:
            yield rest

    def secret(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a Secret whose `data` is encoded in base64. Raises Forbidden if the user may not read it,
        and NotFound if it does not exist.
        """
        return {"data": self.call(self.core.read_namespaced_secret, name, namespace).data or {}}


def missing_kubeconfig(environment: Mapping[str, str]) -> str | None:
    """Return an error text if KUBECONFIG names files but none of them exists; otherwise None."""
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not named or any(Path(part).expanduser().exists() for part in named):
        return None
    return f"KUBECONFIG names {', '.join(named)}, which does not exist"


def _absent(kubeconfig: str | Path | None) -> str | None:
    """Return an error text if the kubeconfig file does not exist, or the default one; otherwise None."""
    path = kubeconfig or kube_config.KUBE_CONFIG_DEFAULT_LOCATION or "~/.kube/config"
    if any(Path(part).expanduser().exists() for part in str(path).split(os.pathsep)):
        return None
    return f"there is no kubeconfig {path}; set KUBECONFIG to the file of your cluster"


def _load(settings: Any, context: str | None, kubeconfig: str | Path | None) -> str:
    """Load the kubeconfig into `settings`. Return the namespace of the kubeconfig context."""
    path = None if kubeconfig is None else str(kubeconfig)
    config.load_kube_config(config_file=path, context=context, client_configuration=settings)
    contexts, active = config.list_kube_config_contexts(config_file=path)
    chosen = {entry["name"]: entry for entry in contexts}[context] if context else active
    return str(chosen["context"].get("namespace") or "default")


def _load_from_pod(settings: Any) -> str:
    """Load the pod's service account into `settings`. Return the pod's namespace."""
    try:
        config.load_incluster_config(client_configuration=settings)
        return _POD_NAMESPACE.read_text().strip() or "default"
    except (ConfigException, OSError) as error:
        raise NoCluster(f"no cluster: {error}") from error


def cause(error: HTTPError) -> str:
    """Return the last part of urllib3's error message, which tells the cause. The earlier parts are names
    of Python objects, which do not help users.
    """
    return re.sub(r"^\[Errno \d+\] ", "", str(getattr(error, "reason", error)).rpartition(": ")[2])
