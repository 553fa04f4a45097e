"""The calls to the API server that the client is made of: configuration, errors, and streams of lines."""

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
"""For an answer. What is followed has no such limit."""
MAX_LINE = 2**24
"""Bytes of one line of a stream: ten times what etcd takes for one object."""
_MALFORMED = (OSError, yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError)
"""What the package kubernetes lets through of a kubeconfig that cannot be read, or has another form."""
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Api:
    """One API server, by one user's rights, with a namespace to use where none is given."""

    def __init__(self, connection: Any, namespace: str) -> None:
        """`connection`: an ApiClient of the package kubernetes."""
        self.namespace = namespace
        self.custom: Any = client.CustomObjectsApi(connection)
        self.core: Any = client.CoreV1Api(connection)
        self._host = connection.configuration.host

    @classmethod
    def connect(
        cls, namespace: str | None = None, context: str | None = None, kubeconfig: str | Path | None = None
    ) -> Api:
        """By kubeconfig, or from inside a pod; NoCluster where neither is there, or it is broken."""
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
                raise NoCluster(f"no cluster: {error}") from error
            default = _load_from_pod(settings)
        return cls(client.ApiClient(settings), namespace or default)

    def call(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        """One request. Raises an ApiError when it is refused, Unreachable when nobody answers."""
        try:
            return verb(*arguments, **{"_request_timeout": TIMEOUT_SECONDS, **options})
        except ApiException as error:
            raise error_of(error.status, error.reason, error.body) from error
        except HTTPError as error:
            raise Unreachable(f"the API server {self._host} does not answer: {cause(error)}") from error
        except RecursionError as error:
            raise Unreachable("an object of the answer is nested too deeply to be read") from error

    def dry_run_pod(self, namespace: str, body: Mapping[str, Any]) -> None:
        """A dry run of a pod, as it stands: the package's own call would check the body by its models.

        Raises an ApiError when the pod is refused, Unreachable when nobody answers.
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
        answer = self.call(connection.call_api, *request)
        text = answer.read()
        if not 200 <= answer.status < 300:
            raise error_of(answer.status, answer.reason, text)

    def lines(self, what: str, verb: Any, *arguments: Any, **options: Any) -> Iterator[bytes]:
        """The lines of an answer that goes on. Unreachable when `what` breaks off; close it to end it."""
        answer = self.call(verb, *arguments, _preload_content=False, **options)
        rest = b""
        try:
            for chunk in answer.stream():
                *found, rest = (rest + chunk).split(b"\n")
                yield from found
                if len(rest) > MAX_LINE:
                    raise Unreachable(f"{what} has a line of more than {MAX_LINE} bytes")
        except HTTPError as error:
            raise Unreachable(f"{what} breaks off: {cause(error)}") from error
        finally:
            # Not back into the pool: there may be more to come.
            answer.close()
        if rest:
            yield rest

    def secret(self, namespace: str, name: str) -> dict[str, Any]:
        """A Secret, its `data` in base64; Forbidden or NotFound when it cannot be read."""
        return {"data": self.call(self.core.read_namespaced_secret, name, namespace).data or {}}


def missing_kubeconfig(environment: Mapping[str, str]) -> str | None:
    """What is wrong with KUBECONFIG when none of the files that it names is there."""
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not named or any(Path(part).expanduser().exists() for part in named):
        return None
    return f"KUBECONFIG names {', '.join(named)}, which does not exist"


def _load(settings: Any, context: str | None, kubeconfig: str | Path | None) -> str:
    """Loads the kubeconfig; the context's namespace."""
    path = None if kubeconfig is None else str(kubeconfig)
    config.load_kube_config(config_file=path, context=context, client_configuration=settings)
    contexts, active = config.list_kube_config_contexts(config_file=path)
    chosen = {entry["name"]: entry for entry in contexts}[context] if context else active
    return str(chosen["context"].get("namespace") or "default")


def _load_from_pod(settings: Any) -> str:
    """Loads what the kubelet gave the pod; the pod's namespace."""
    try:
        config.load_incluster_config(client_configuration=settings)
        return _POD_NAMESPACE.read_text().strip() or "default"
    except (ConfigException, OSError) as error:
        raise NoCluster(f"no cluster: {error}") from error


def cause(error: HTTPError) -> str:
    """The last words of urllib3's, which begin with the names of its objects."""
    return re.sub(r"^\[Errno \d+\] ", "", str(getattr(error, "reason", error)).rpartition(": ")[2])
