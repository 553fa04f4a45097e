"""The few calls that the command line makes to a cluster, by the user's own kubeconfig."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from convoy_crds.meta import GROUP, VERSION
from convoy_crds.terms import LABEL_JOB
from convoy_crds.trainingjob import TrainingJob

TIMEOUT_SECONDS = 30
PLURAL = "trainingjobs"

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; the kubeconfig context's by default.")
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]


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
        try:
            config.load_kube_config(context=context)
            contexts, active = config.list_kube_config_contexts()
            named = {entry["name"]: entry for entry in contexts}
            chosen = named[context] if context else active
            default = chosen.get("context", {}).get("namespace", "default")
        except (ConfigException, TypeError):
            try:
                config.load_incluster_config()
                default = "default"
            except ConfigException as error:
                raise Failure(f"no cluster: {error}; set KUBECONFIG") from error
        return cls(namespace or default, client.CustomObjectsApi(), client.CoreV1Api())

    def job(self, name: str) -> TrainingJob:
        """One job; Failure when there is none."""
        return TrainingJob.model_validate(
            self._call(self.custom.get_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL, name)
        )

    def jobs(self, everywhere: bool) -> list[TrainingJob]:
        """The jobs of the namespace, or of all."""
        if everywhere:
            found = self._call(self.custom.list_cluster_custom_object, GROUP, VERSION, PLURAL)
        else:
            found = self._call(
                self.custom.list_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL
            )
        return [TrainingJob.model_validate(item) for item in found["items"]]

    def patch(self, name: str, body: dict[str, Any]) -> TrainingJob:
        """Merge-patches one job."""
        return TrainingJob.model_validate(
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
        """The newest Events about an object, oldest first."""
        found = self._call(
            self.core.list_namespaced_event, self.namespace, field_selector=f"involvedObject.uid={uid}"
        )
        return sorted(found.items, key=lambda event: str(event.last_timestamp or event.event_time or ""))[
            -10:
        ]

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
        for chunk in answer.stream():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
        if rest:
            yield rest.decode(errors="replace")

    def _call(self, verb: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return verb(*arguments, **{"_request_timeout": TIMEOUT_SECONDS, **options})
        except ApiException as error:
            raise Failure(self._explain(error)) from error

    @staticmethod
    def _explain(error: ApiException) -> str:
        try:
            return str(json.loads(error.body or "")["message"])
        except (TypeError, ValueError, KeyError):
            return f"{error.status} {error.reason}"
