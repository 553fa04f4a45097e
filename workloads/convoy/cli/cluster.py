"""The few calls that the command line makes to a cluster, by the user's own kubeconfig."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from convoy_crds.checkpointstore import CheckpointStore
from convoy_crds.engine import Engine
from convoy_crds.meta import GROUP, VERSION
from convoy_crds.nodehealth import NodeHealth
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob

M = TypeVar("M", TrainingJob, Engine, CheckpointStore, NodeHealth)

TIMEOUT_SECONDS = 30
PLURAL = "trainingjobs"

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the TrainingJob.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", metavar="NAMESPACE", help="Namespace; the kubeconfig context's by default."
    ),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="CONTEXT", help="Context of the kubeconfig.")
]


class Failure(typer.Exit):
    """Ends the command with status 1 and one sentence on stderr."""

    def __init__(self, message: str) -> None:
        typer.echo(f"error: {message}", err=True)
        super().__init__(1)


@dataclass(frozen=True)
class Cluster:
    """One cluster and namespace."""

    namespace: str
    custom: Any
    core: Any

    @classmethod
    def connect(cls, namespace: str | None, context: str | None) -> Cluster:
        """By kubeconfig, or from inside a pod; Failure when neither is there."""
        if missing := missing_kubeconfig(os.environ):
            raise Failure(missing)
        try:
            default = _load(context)
        except (ConfigException, TypeError) as error:
            if context or "KUBERNETES_SERVICE_HOST" not in os.environ:
                raise Failure(f"no cluster: {error}") from error
            config.load_incluster_config()
            default = "default"
        return cls(namespace or default, client.CustomObjectsApi(), client.CoreV1Api())

    def job(self, name: str) -> TrainingJob:
        """One job; Failure when there is none."""
        return _read(
            TrainingJob,
            self._call(
                self.custom.get_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL, name
            ),
        )

    def jobs(self, everywhere: bool) -> list[TrainingJob]:
        """The jobs of the namespace, or of all."""
        if everywhere:
            found = self._call(self.custom.list_cluster_custom_object, GROUP, VERSION, PLURAL)
        else:
            found = self._call(
                self.custom.list_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL
            )
        return [_read(TrainingJob, item) for item in found["items"]]

    def engines(self) -> list[Engine]:
        """The catalogue."""
        found = self._call(self.custom.list_cluster_custom_object, GROUP, VERSION, "engines")
        return [_read(Engine, item) for item in found["items"]]

    def every_job(self) -> list[TrainingJob] | None:
        """The jobs of all namespaces; None when the user may not list them."""
        found = self._call(self.custom.list_cluster_custom_object, GROUP, VERSION, PLURAL, none_for={403})
        return None if found is None else [_read(TrainingJob, item) for item in found["items"]]

    def store(self, name: str) -> CheckpointStore:
        """One CheckpointStore; Failure when there is none."""
        body = self._call(self.custom.get_cluster_custom_object, GROUP, VERSION, "checkpointstores", name)
        return _read(CheckpointStore, body)

    def node_healths(self) -> list[NodeHealth]:
        """What is known of all nodes' hardware."""
        found = self._call(self.custom.list_cluster_custom_object, GROUP, VERSION, "nodehealths")
        return [_read(NodeHealth, item) for item in found["items"]]

    def patch_node_health(self, name: str, body: dict[str, Any]) -> None:
        """Merge-patches one NodeHealth."""
        self._call(
            self.custom.patch_cluster_custom_object,
            GROUP,
            VERSION,
            "nodehealths",
            name,
            body,
            _content_type="application/merge-patch+json",
        )

    def secret(self, namespace: str, name: str) -> dict[str, Any]:
        """A Secret, its `data` in base64. Failure when there is none, or the user may not read it."""
        hints = {
            403: f"ask an administrator for the right to get Secret {name} in namespace {namespace}",
            404: "is the operator in another namespace? --operator-namespace says in which",
        }
        found = self._call(self.core.read_namespaced_secret, name, namespace, hints=hints)
        return {"data": found.data or {}}

    def patch(self, name: str, body: dict[str, Any]) -> None:
        """Merge-patches one job."""
        self._call(
            self.custom.patch_namespaced_custom_object,
            GROUP,
            VERSION,
            self.namespace,
            PLURAL,
            name,
            body,
            _content_type="application/merge-patch+json",
        )

    def delete(self, name: str) -> None:
        """Deletes one job; its pods follow."""
        self._call(self.custom.delete_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL, name)

    def pods(self, name: str) -> list[Any]:
        """The pods of a job, by name."""
        found = self._call(
            self.core.list_namespaced_pod, self.namespace, label_selector=f"{LABEL_JOB}={name}"
        )
        return sorted(found.items, key=lambda pod: int(pod.metadata.labels.get("convoy.dev/index", 0)))

    def events(self, uid: str) -> list[Any]:
        """The Events about an object, in no order."""
        return list(
            self._call(
                self.core.list_namespaced_event, self.namespace, field_selector=f"involvedObject.uid={uid}"
            ).items
        )

    def log_lines(self, pod: str, container: str, follow: bool) -> Iterator[str]:
        """The lines of a container's log."""
        answer = self._call(
            self.core.read_namespaced_pod_log,
            pod,
            self.namespace,
            container=container,
            follow=follow,
            _preload_content=False,
            _request_timeout=None if follow else TIMEOUT_SECONDS,
        )
        rest = b""
        try:
            for chunk in answer.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
        except HTTPError as error:
            raise Failure(f"the log of {pod} breaks off: {_cause(error)}") from error
        if rest:
            yield rest.decode(errors="replace")

    def _call(
        self,
        verb: Any,
        *arguments: Any,
        hints: Mapping[int, str] | None = None,
        none_for: Collection[int] = (),
        **options: Any,
    ) -> Any:
        """`hints`: what to do, by HTTP status. `none_for`: statuses that are answered by None."""
        try:
            return verb(*arguments, **{"_request_timeout": TIMEOUT_SECONDS, **options})
        except ApiException as error:
            if error.status in none_for:
                return None
            hint = (hints or {}).get(error.status, "")
            raise Failure("; ".join(filter(None, (self._explain(error), hint)))) from error
        except HTTPError as error:
            host = self.core.api_client.configuration.host
            raise Failure(f"the API server {host} does not answer: {_cause(error)}") from error

    @staticmethod
    def _explain(error: ApiException) -> str:
        try:
            return str(json.loads(error.body or "")["message"])
        except (TypeError, ValueError, KeyError):
            return f"{error.status} {error.reason}"


def _read(kind: type[M], body: Any) -> M:
    """An object of the cluster, whose operator may be newer: fields that are not known here are left out."""
    return kind.model_validate(body, extra="ignore")


def missing_kubeconfig(environment: Mapping[str, str]) -> str | None:
    """What is wrong with KUBECONFIG when none of the files that it names is there."""
    named = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not named or any(Path(part).expanduser().exists() for part in named):
        return None
    return f"KUBECONFIG names {', '.join(named)}, which does not exist"


def _load(context: str | None) -> str:
    """Loads the kubeconfig; the context's namespace."""
    config.load_kube_config(context=context)
    contexts, active = config.list_kube_config_contexts()
    chosen = {entry["name"]: entry for entry in contexts}[context] if context else active
    return str(chosen.get("context", {}).get("namespace", "default"))


def _cause(error: HTTPError) -> str:
    """The last words of urllib3's, which begin with the names of its objects."""
    return re.sub(r"^\[Errno \d+\] ", "", str(getattr(error, "reason", error)).rpartition(": ")[2])
